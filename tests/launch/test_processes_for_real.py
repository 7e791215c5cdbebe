"""launch/processes.sh with the real program: a run of two processes, stopped and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEPS = {"train.steps": 40}


def losses(workdir):
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return {record["step"]: record["loss"] for record in records if record["split"] == "train"}


@pytest.mark.slow
@pytest.mark.usefixtures("processes_without_torch")
def test_two_processes_are_stopped_and_go_on(train_command, add_program, programs, tmp_path):
    add_program("bert-jax", f'exec {sys.executable} -m bert_jax "$@"')
    here, there = tmp_path / "one", tmp_path / "two"
    _, _, _, *arguments = train_command(there, STEPS)
    command = ["bash", "launch/processes.sh", "2", "--devices", "2", "--logs", tmp_path / "logs"]
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    environment.pop("XLA_FLAGS", None)

    def start():
        return subprocess.Popen(
            [*command, "--", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    process = start()
    while not ((there / "metrics.jsonl").exists() and len(losses(there)) > 5):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 75, errors

    process = start()
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    stored = json.loads((there / "result.json").read_text())
    del stored["warnings"]  # printed at the start
    assert stored.pop("exported_step") == STEPS["train.steps"]
    assert json.loads(output.splitlines()[-1]) == stored

    subprocess.run(train_command(here, STEPS), check=True, capture_output=True)
    assert list(losses(there)) == list(losses(here))
    for step, loss in losses(here).items():
        assert losses(there)[step] == pytest.approx(loss, rel=1e-5)
