"""launch/processes.sh: what it starts, and what it does when a process ends or is stopped."""

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Process I does what argument I + 2 says: waits for a signal, or ends with that code. Process 0
# is the slowest to save.
BERT_JAX = """
id=${!#}
what=$((id + 2))
trap '[ "$id" != 0 ] || sleep 0.5; echo "$id saved" >> "$RECORD"; exit 75' TERM INT
echo "process $id speaks"
echo "$id started" >> "$RECORD"
[ "${!what}" = wait ] || exit "${!what}"
while :; do sleep 0.05; done
"""


@pytest.fixture
def record(add_program, environment, tmp_path):
    add_program("bert-jax", BERT_JAX)
    environment["RECORD"] = str(tmp_path / "record")
    return tmp_path / "record"


def test_the_dry_run_says_what_would_be_started(run_script, add_program):
    program = add_program("bert-jax", "exit 1")
    run = ("train", "--config", "a.py:b=c d,e=f", "--workdir", "runs/a")
    done = run_script("processes.sh", "2", "--devices", "4", "--dry-run", "--", *run)
    assert done.returncode == 0, done.stderr
    for number, line in enumerate(done.stdout.splitlines()):
        assert shlex.split(line) == [
            *("env", "JAX_PLATFORMS=cpu", "XLA_FLAGS=--xla_force_host_platform_device_count=4"),
            *(str(program), *run, "--coordinator", "127.0.0.1:PORT", "--processes", "2"),
            *("--process-id", str(number)),
        ]
    assert number == 1


def test_the_main_process_speaks_and_the_others_have_logs(run_script, record, tmp_path):
    logs = tmp_path / "logs"
    done = run_script("processes.sh", "3", "--logs", str(logs), "--", "train", "0", "0", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "process 0 speaks\n"
    assert (logs / "process-2.log").read_text() == "process 2 speaks\n"
    assert sorted(record.read_text().splitlines()) == [f"{number} started" for number in range(3)]


def test_one_that_fails_stops_the_others(run_script, record, tmp_path):
    done = run_script(
        "processes.sh", "3", "--logs", str(tmp_path), "--", "train", "wait", "3", "wait"
    )
    assert done.returncode == 3
    assert "process 1 ended with code 3; stopping the others\nprocess 1 speaks" in done.stderr
    assert {"0 saved", "2 saved"} <= set(record.read_text().splitlines())


@pytest.fixture
def waiting(environment, record, tmp_path):
    """The script with two processes that wait, in a session of its own."""
    process = subprocess.Popen(
        ["bash", "launch/processes.sh", "2", "--logs", tmp_path, "--", "train", "wait", "wait"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (record.exists() and record.read_text().count("started") == 2):
        assert process.poll() is None
        time.sleep(0.05)
    return process


def test_a_signal_reaches_all(waiting, record):
    waiting.send_signal(signal.SIGTERM)
    _, said = waiting.communicate()
    assert waiting.returncode == 75
    assert said == ""
    assert {"0 saved", "1 saved"} <= set(record.read_text().splitlines())


def test_ctrl_c_is_passed_on_once(waiting, record):
    os.killpg(waiting.pid, signal.SIGINT)  # as a terminal does
    _, said = waiting.communicate()
    assert waiting.returncode == 75
    assert said == ""
    assert sorted(record.read_text().splitlines()[2:]) == ["0 saved", "1 saved"]


def test_help_from_any_folder(environment):
    for folder, script in ((ROOT / "launch", "processes.sh"), (ROOT / "tests", "../launch/tpu.sh")):
        done = subprocess.run(
            ["bash", script, "--help"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"bash launch/{Path(script).name} " in done.stdout


def test_mistakes_are_one_line(refused):
    assert "how many processes?" in refused("processes.sh", "--", "train")
    assert "not a number" in refused("processes.sh", "two", "--", "train")
    assert "unexpected" in refused("processes.sh", "2", "3", "--", "train")
    assert "--devices needs a value" in refused("processes.sh", "2", "--devices")
    assert "what is to run?" in refused("processes.sh", "2")
    assert "only train and evaluate" in refused("processes.sh", "2", "--", "export")
