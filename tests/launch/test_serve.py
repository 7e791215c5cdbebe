"""launch/serve/: the manifest and the image name what the server and the package have."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

from bert_jax import cli
from bert_jax.cli.serve import API_KEY
from bert_jax.serving import server
from bert_jax.serving.app import make_app
from bert_jax.serving.limits import ServerLimits
from bert_jax.serving.metrics import Metrics
from bert_jax.serving.models import Models
from bert_jax.serving.service import Service

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "launch" / "serve"
CACHE, TEMPORARY = "/cache", "/tmp"


@pytest.fixture(scope="module")
def objects():
    """The objects of the manifest by their kinds."""
    loaded = list(yaml.safe_load_all((DIRECTORY / "deployment.yaml").read_text()))
    return {each["kind"]: each for each in loaded}


@pytest.fixture(scope="module")
def pod(objects):
    return objects["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    (container,) = pod["containers"]
    return container


@pytest.fixture(scope="module")
def instructions():
    """The instructions of the image, each with its words."""
    lines = (DIRECTORY / "Dockerfile").read_text().splitlines()
    pairs = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    return [(name, words) for name, words in pairs]


@pytest.fixture(scope="module")
def paths():
    """The paths that the server answers on GET."""
    limits = ServerLimits()
    service = Service(Models({}, limits), limits)
    routes = make_app(service).routes
    service.close()
    return {route.path for route in routes if "GET" in route.methods}


def test_names_are_those_of_each_other(objects):
    deployment, service = objects["Deployment"], objects["Service"]
    assert set(objects) == {"Deployment", "Service", "HorizontalPodAutoscaler"}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    target = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])


def test_arguments_are_those_of_the_command(container, instructions):
    entry = ast.literal_eval(dict(instructions)["ENTRYPOINT"])
    assert entry == ["bert-jax", "serve"]
    options = cli.parse([*entry[1:], *container["args"]])
    assert options.host == "0.0.0.0"
    (port,) = container["ports"]
    assert port["containerPort"] == options.port == int(dict(instructions)["EXPOSE"])


def test_probes_ask_what_there_is(objects, container, paths):
    (port,) = container["ports"]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        request = container[name]["httpGet"]
        assert request == {"path": "/health", "port": port["name"]}
        assert request["path"] in paths
    (of_service,) = objects["Service"]["spec"]["ports"]
    assert of_service["targetPort"] == port["name"]


def test_the_server_may_answer_all_before_it_is_killed(pod, container):
    _, asleep = container["lifecycle"]["preStop"]["exec"]["command"]
    seconds = int(asleep) + server._DRAIN_SECONDS + ServerLimits().timeout + 1
    assert pod["terminationGracePeriodSeconds"] >= seconds + 10  # and to end the process


def test_the_metric_is_one_of_the_server(objects):
    (metric,) = objects["HorizontalPodAutoscaler"]["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    assert re.search(rf"(?m)^# TYPE {name} gauge$", Metrics().exposition().decode())
    limits = ServerLimits()
    waiting = int(metric["pods"]["target"]["averageValue"])
    assert limits.batch_size <= waiting < limits.max_waiting
    page = (ROOT / "docs" / "serving.md").read_text()
    scrape, adapter = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    (rule,) = adapter["rules"]["custom"]
    assert rule["seriesQuery"] == name
    (job,) = scrape["scrape_configs"]
    (kept,) = (rule["regex"] for rule in job["relabel_configs"] if "regex" in rule)
    assert kept in objects["Deployment"]["spec"]["template"]["metadata"]["labels"].values()


def test_the_key_is_a_secret(container):
    (key,) = (each for each in container["env"] if each["name"] == API_KEY)
    assert "optional" not in key["valueFrom"]["secretKeyRef"]
    created = re.search("kubectl create secret .*", (DIRECTORY / "deployment.yaml").read_text())
    words = shlex.split(created[0])
    reference = key["valueFrom"]["secretKeyRef"]
    assert words[4] == reference["name"]
    assert words[5].startswith(f"--from-literal={reference['key']}=")


def test_it_has_few_rights_and_two_places_to_write(pod, container, instructions):
    user = pod["securityContext"]["runAsUser"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert dict(instructions)["USER"] == f"{user}:{pod['securityContext']['runAsGroup']}"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounts.values()) == {CACHE, TEMPORARY}
    assert {each["name"] for each in pod["volumes"] if "emptyDir" in each} == set(mounts)
    assert dict(instructions)["ENV"] == f"HOME={CACHE} XDG_CACHE_HOME={CACHE}"
    assert container["resources"]["limits"] == container["resources"]["requests"]


def test_the_image_has_what_there_is(instructions):
    for name, words in instructions:
        if name == "COPY":
            *sources, _ = words.split()
            assert all((ROOT / source).exists() for source in sources)
    setup = (ROOT / "setup.py").read_text()
    named = re.findall(r"EXTRAS=([\w,]+)", (DIRECTORY / "Dockerfile").read_text())
    extras = {extra for each in named for extra in each.split(",")}
    assert extras == {"serve", "cuda", "tpu"}
    assert all(f'"{extra}": [' in setup for extra in extras)
    version = dict(instructions)["FROM"].removeprefix("python:").removesuffix("-slim")
    assert f"Programming Language :: Python :: {version}" in setup
