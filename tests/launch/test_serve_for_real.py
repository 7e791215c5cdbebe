"""The command of the image with the arguments and variables of the manifest, as a pod runs it."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
import yaml

from bert_jax.cli.serve import API_KEY

pytestmark = pytest.mark.slow

MANIFEST = Path(__file__).parents[2] / "launch" / "serve" / "deployment.yaml"
KEY = "a key"


@pytest.fixture(scope="module")
def pod():
    objects = yaml.safe_load_all(MANIFEST.read_text())
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    return deployment["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def server(pod, make_model, tmp_path_factory):
    """The port and the process of the container, which may write to its two volumes alone."""
    (container,) = pod["containers"]
    root = tmp_path_factory.mktemp("container")
    make_model("encoder").save(root / "model")
    mounts = {mount["name"]: root / mount["name"] for mount in container["volumeMounts"]}
    for path in mounts.values():
        path.mkdir()
    (root / "work").mkdir(mode=0o500)
    values = {API_KEY: KEY, "PJRT_NPROC": container["resources"]["limits"]["cpu"]}
    assert {each["name"] for each in container["env"]} == set(values)
    arguments = [
        re.sub("^--model=.*", f"--model={root / 'model'}", re.sub(r"^--port=\d+", "--port=0", each))
        for each in container["args"]
    ]
    cache = str(mounts["cache"])
    of_tests = ("PATH", "PYTHONPATH", "JAX_", "XLA_")  # few optimisations, programs from a cache
    kept = {name: value for name, value in os.environ.items() if name.startswith(of_tests)}
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", "serve", *arguments, "--batch-size=2"],
        cwd=root / "work",
        stderr=subprocess.PIPE,
        text=True,
        env=kept
        | values
        | {"HOME": cache, "XDG_CACHE_HOME": cache, "JAX_PLATFORMS": "cpu"}
        | {"TMPDIR": str(mounts["tmp"])},
    )
    lines = iter(process.stderr.readline, "")
    address = next(line.split()[-1] for line in lines if line.startswith("serving on "))
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(lines), daemon=True)
    reader.start()
    yield int(address.rpartition(":")[2]), process, said, reader
    process.kill()
    process.wait()


def test_a_pod_is_probed_scraped_and_stopped(pod, server):
    port, process, said, reader = server
    (container,) = pod["containers"]
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as route:
        route.connect(("192.0.2.1", 9))  # sends nothing; the address of this machine's interface
        host = route.getsockname()[0]
    address = f"http://{host}:{port}"  # probes and Prometheus name an IP address
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[name]["httpGet"]["path"]
        assert httpx.get(address + path).status_code == 200
    assert httpx.get(f"{address}/metrics").status_code == 401
    key = {"Authorization": f"Bearer {KEY}"}
    assert "bert_jax_waiting_examples" in httpx.get(f"{address}/metrics", headers=key).text
    body = {"inputs": "the cat"}
    assert httpx.post(f"{address}/embed", json=body).status_code == 401
    assert httpx.post(f"{address}/embed", json=body, headers=key, timeout=60).status_code == 200
    asleep = container["lifecycle"]["preStop"]["exec"]["command"]
    subprocess.run([asleep[0], "0"], check=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(pod["terminationGracePeriodSeconds"]) == 0
    reader.join()
    assert said[-1] == "stopped; all accepted requests are answered\n"
