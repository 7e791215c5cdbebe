"""launch/tpu.sh against a stand-in for gcloud: its hosts are directories, its ssh is bash."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLICE = ("--name", "bert", "--zone", "us-west4-a", "--project", "p")
RUN = ("train", "--config", "configs/pretrain.py:size=base,corpus=gs://b/it's c", "--workdir",
       "gs://b/run")  # fmt: skip

# Two hosts. `state` holds that of the queued resource; without the file there is none.
GCLOUD = """
import json, os, pathlib, shutil, subprocess, sys
cloud = pathlib.Path(os.environ["CLOUD"])
state, words = cloud / "state", sys.argv[1:]
with (cloud / "calls").open("a") as file:
    file.write(json.dumps(words) + "\\n")
# The calls that a pattern is found in fail so many times; of what is created, after it is.
trouble = cloud / "trouble"
fails = False
if trouble.exists():
    pattern, times = trouble.read_text().split("\\n")
    fails = pattern in " ".join(words) and int(times) > 0
    trouble.write_text(f"{pattern}\\n{int(times) - fails}")
if fails and words[3] != "create":
    sys.exit("ERROR: connection reset")
flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
hosts = [cloud / "host-0", cloud / "host-1"]
if words[:2] == ["config", "get-value"]:
    print(os.environ.get("PROJECT", "(unset)"))
elif words[3] == "create":
    state.write_text("ACTIVE")
    for host in hosts:
        # As an installed one, so that nothing is installed in a test.
        python = host / "bert_jax" / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch(mode=0o755)
        (python.parents[1] / "installed[tpu,gcs]").write_text(os.environ["STAMP"])
    sys.exit("ERROR: connection reset" if fails else 0)
elif not state.exists():
    sys.exit("ERROR: (gcloud.compute.tpus) NOT_FOUND: Resource not found")
elif words[3] == "describe":
    offline = cloud / "offline"
    if offline.exists() and (left := int(offline.read_text())):
        offline.write_text(str(left - 1))
        sys.exit("some line\\nERROR: network is unreachable")
    print("WARNING: of no interest", file=sys.stderr)
    print(state.read_text())
elif words[3] == "delete":
    state.unlink()
    for host in hosts:
        shutil.rmtree(host)
elif words[3] == "scp":
    for host in hosts:
        shutil.copy(words[4], host / words[5].split(":")[1])
elif words[3] == "ssh":
    chosen = hosts if flags["worker"] == "all" else [hosts[int(flags["worker"])]]
    shell = ["bash", "-c", flags["command"]]
    done = [
        subprocess.Popen(shell, cwd=host, env=os.environ | {"HOME": str(host)}) for host in chosen
    ]
    codes = [process.wait() for process in done]
    if not state.exists() or state.read_text() != "ACTIVE":
        sys.exit(255)
    sys.exit(next((code for code in codes if code), 0))
"""
# Appends its arguments to $CLOUD/runs and then does what the n-th line of $CLOUD/script says.
BERT_JAX = """
import json, os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
cloud, host = pathlib.Path(os.environ["CLOUD"]), pathlib.Path(os.environ["HOME"]).name
with (cloud / f"runs-{host}").open("a+") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
    file.seek(0)
    turn = len(file.readlines())
print(f"{host} turn {turn}", flush=True)
what = (cloud / "script").read_text().split()[turn - 1]
if what == "preempted":
    time.sleep(0.3)
    (cloud / "state").write_text("SUSPENDED")
elif what == "deleted":
    time.sleep(0.3)
    (cloud / "state").unlink(missing_ok=True)
elif what == "wait":
    time.sleep(60)
else:
    sys.exit(int(what))
"""


@pytest.fixture
def cloud(add_program, environment, tmp_path):
    directory = tmp_path / "cloud"
    directory.mkdir()
    add_program("gcloud", GCLOUD)
    add_program("bert-jax", BERT_JAX)
    with (ROOT / "setup.py").open() as setup:
        stamp = subprocess.run(["cksum"], stdin=setup, capture_output=True, text=True, check=True)
    environment.update(CLOUD=str(directory), STAMP=stamp.stdout)
    return directory


def calls_of(cloud):
    """The commands that gcloud got: the fourth words, as create, ssh, …."""
    lines = (cloud / "calls").read_text().splitlines()
    return [json.loads(line)[3] for line in lines]


def test_the_dry_run_says_everything(run_script):
    done = run_script(
        "tpu.sh", "run", *SLICE, "--topology", "v5e:16x16", "--spot", "--dry-run", "--", *RUN
    )
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line) for line in done.stdout.splitlines() if line[0] != "#"]
    pack, create, describe, scp, install, start, follow, wait, delete = commands
    where = ["--zone=us-west4-a", "--project=p", "--quiet"]
    assert create == [
        *("gcloud", "compute", "tpus", "queued-resources", "create", "bert", "--node-id=bert"),
        *("--accelerator-type=v5litepod-256", "--runtime-version=v2-alpha-tpuv5-lite", "--spot"),
        *("--scopes=https://www.googleapis.com/auth/cloud-platform", *where),
    ]
    assert describe[3:] == [
        "queued-resources", "describe", "bert", "--format=value(state.state)", *where
    ]  # fmt: skip
    assert pack[0] == "git"
    assert scp[3:] == ["tpu-vm", "scp", "bert_jax.tar.gz", "bert:bert_jax.tar.gz", "--worker=all",
                       *where]  # fmt: skip
    for command in (install, start, follow, wait):
        assert command[3:6] == ["tpu-vm", "ssh", "bert"]
    assert [command[6] for command in (start, follow, wait)] == [
        "--worker=all", "--worker=0", "--worker=all"
    ]  # fmt: skip
    # Two shells read it: the one here, and that of the host.
    remote = shlex.split(start[7].removeprefix("--command="))
    assert remote == ["bash", "bert_jax/launch/tpu/worker.sh", "start", *RUN]
    assert delete[3:] == ["queued-resources", "delete", "bert", "--force", *where]


@pytest.mark.parametrize(
    ("topology", "accelerator", "runtime"),
    [
        ("v4:2x2x4", "v4-32", "tpu-ubuntu2204-base"),
        ("v5p:4x4x4", "v5p-128", "v2-alpha-tpuv5"),
        ("v5e:1x1", "v5litepod-1", "v2-alpha-tpuv5-lite"),
        ("v6e:8x16", "v6e-128", "v2-alpha-tpuv6e"),
    ],
)
def test_the_names_of_slices(run_script, topology, accelerator, runtime):
    done = run_script("tpu.sh", "create", *SLICE, "--topology", topology, "--dry-run")
    words = shlex.split(done.stdout.splitlines()[0])
    assert f"--accelerator-type={accelerator}" in words
    assert f"--runtime-version={runtime}" in words


@pytest.mark.slow
def test_a_preempted_run_goes_on_with_a_new_slice(run_script, cloud):
    (cloud / "script").write_text("preempted 75 0")
    done = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--spot", "--", *RUN)
    assert done.returncode == 0, done.stderr
    assert "host-0 turn 3" in done.stdout
    assert "bert is SUSPENDED: creating it again" in done.stderr
    calls = calls_of(cloud)
    assert (calls.count("create"), calls.count("delete")) == (2, 2)
    assert calls[-1] == "delete"
    for host in ("host-0", "host-1"):
        runs = (cloud / f"runs-{host}").read_text().splitlines()
        assert [json.loads(line) for line in runs] == [list(RUN)] * 3


@pytest.mark.slow
def test_bad_input_ends_it_and_the_slice_is_not_forgotten(run_script, cloud):
    (cloud / "script").write_text("2")
    done = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--", *RUN)
    assert done.returncode == 2
    assert "still stands and costs" in done.stderr
    assert "delete" not in calls_of(cloud)


@pytest.mark.slow
def test_a_network_that_fails_for_a_while_leaves_no_slice_alone(run_script, cloud):
    (cloud / "script").write_text("preempted 0")
    (cloud / "offline").write_text("2")
    (cloud / "state").write_text("ACTIVE")
    # Not even a first answer: nothing was asked for, so nothing can cost.
    refused = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--", *RUN)
    assert refused.returncode == 2
    assert refused.stderr == "tpu.sh: gcloud cannot describe bert: ERROR: network is unreachable\n"

    (cloud / "state").unlink()
    done = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--", *RUN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("network is unreachable") == 1
    assert calls_of(cloud)[-1] == "delete"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["resources create", "resources delete", "worker.sh wait"])
def test_a_call_that_fails_once_leaves_no_slice_alone(run_script, cloud, call):
    (cloud / "script").write_text("0 0")
    (cloud / "trouble").write_text(f"{call}\n1")
    done = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--", *RUN)
    assert done.returncode == 0, done.stderr
    assert "connection reset" in done.stderr
    assert calls_of(cloud)[-1] == "delete"
    assert not (cloud / "state").exists()


@pytest.mark.slow
def test_a_slice_that_its_owner_deletes_stays_deleted(run_script, cloud):
    (cloud / "script").write_text("deleted")
    done = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--", *RUN)
    assert done.returncode == 75
    assert "bert was deleted; the same command creates it again and resumes" in done.stderr
    assert calls_of(cloud).count("create") == 1


@pytest.mark.slow
def test_what_cannot_be_installed_is_tried_three_times(run_script, cloud):
    (cloud / "script").write_text("0")
    assert run_script("tpu.sh", "create", *SLICE, "--topology", "v5e:4x4").returncode == 0
    for number in (0, 1):
        (cloud / f"host-{number}" / "bert_jax.tar.gz").mkdir()  # nothing can be copied there
    done = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--", *RUN)
    assert done.returncode == 2
    assert calls_of(cloud).count("scp") == 3
    assert "cannot be installed or started on bert (see above), which still" in done.stderr


@pytest.mark.slow
def test_a_run_that_was_broken_off_is_found_again(run_script, cloud):
    (cloud / "script").write_text("wait 0")
    assert run_script("tpu.sh", "create", *SLICE, "--topology", "v5e:4x4").returncode == 0
    assert run_script("tpu.sh", "install", *SLICE).returncode == 0
    assert run_script("tpu.sh", "start", *SLICE, "--", *RUN).returncode == 0
    again = run_script("tpu.sh", "start", *SLICE, "--", *RUN)
    assert again.stderr.count("running already") == 2
    assert run_script("tpu.sh", "status", *SLICE).stdout == "ACTIVE\nrunning\nrunning\n"
    assert run_script("tpu.sh", "stop", *SLICE).returncode == 0
    assert run_script("tpu.sh", "status", *SLICE).stdout == "ACTIVE\nexited 75\nexited 75\n"
    done = run_script("tpu.sh", "run", *SLICE, "--topology", "v5e:4x4", "--keep", "--", *RUN)
    assert done.returncode == 0, done.stderr
    assert calls_of(cloud).count("create") == 1
    assert "delete" not in calls_of(cloud)
    assert run_script("tpu.sh", "delete", *SLICE).returncode == 0
    assert not (cloud / "state").exists()


def test_mistakes_are_one_line(refused, cloud, programs):
    assert "--name is missing" in refused("tpu.sh", "status")
    assert "--zone is missing" in refused("tpu.sh", "status", "--name", "bert")
    assert "no project" in refused("tpu.sh", "status", *SLICE[:4])
    assert "unknown verb" in refused("tpu.sh", "runn")
    assert "--topology is missing" in refused("tpu.sh", "create", *SLICE)
    assert "unknown accelerator v9; known are v4, v5e, v5p, v6e" in refused(
        "tpu.sh", "create", *SLICE, "--topology", "v9:2x2"
    )
    assert "no such slice of v4" in refused("tpu.sh", "create", *SLICE, "--topology", "v4:4x4")
    assert "what is to run?" in refused("tpu.sh", "start", *SLICE)
    assert "would be lost" in refused("tpu.sh", "start", *SLICE, "--", "train", "--workdir=runs/a")
    assert "takes nothing after --" in refused("tpu.sh", "stop", *SLICE, "--", "train")
    (programs / "gcloud").unlink()
    assert "gcloud is not installed" in refused("tpu.sh", "status", *SLICE)


def test_the_project_is_that_of_gcloud(run_script, cloud):
    done = run_script("tpu.sh", "stop", *SLICE[:4], "--dry-run", extra={"PROJECT": "mine"})
    assert "--project=mine" in done.stdout


@pytest.mark.slow
def test_gcloud_knows_every_command_and_option(run_script, tmp_path):
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        pytest.skip("gcloud is not installed")
    done = run_script(
        "tpu.sh", "run", *SLICE, "--topology", "v5e:16x16", "--spot", "--dry-run", "--", *RUN
    )
    commands = [line for line in done.stdout.splitlines() if line.startswith("gcloud")]
    commands.append(f"{commands[0]} --no-such-option=1")
    file = tmp_path / "commands.json"
    file.write_text(json.dumps([{"command_string": command} for command in commands]))
    # Its own check of a command line, which asks nobody and runs nothing.
    checked = subprocess.run(
        [gcloud, "meta", "lint-gcloud-commands", f"--commands-file={file}"],
        env=os.environ | {"CLOUDSDK_CONFIG": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(checked.stdout)
    wrong = {found["command_string"]: found["error_message"] for found in results}
    assert len(wrong) == len(commands)
    assert wrong.pop(commands[-1]).startswith("unrecognized arguments: --no-such-option=1")
    assert set(wrong.values()) == {None}
