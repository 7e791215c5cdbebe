"""Runs of an encoder-decoder: killed for real and resumed, and on eight devices."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.runs import assert_same_metrics, logged_step

pytestmark = pytest.mark.slow

STEPS = 40
KEYS = {
    "train.steps": STEPS,
    "train.log_every": 1,
    "train.eval_every": 10,
    "train.evaluate_per_epoch": 0,
    "train.checkpoint_every": 5,
    "train.global_batch_size": 8,
    "data.length": 16,
    "data.target_length": 12,
    "generation.num_beams": 2,
    "precision": "float32",
}


@pytest.fixture(scope="module")
def start(base_t5, tmp_path_factory):
    """Starts a training on pairs of words and returns its process."""
    file, draw = tmp_path_factory.mktemp("pairs") / "train.jsonl", random.Random(3)
    words = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "to", "sea", "it", "was", "long"]
    rows = [draw.choices(words, k=draw.randint(1, 6)) for _ in range(300)]
    pairs = [{"source": " ".join(row), "target": " ".join(row[::-1])} for row in rows]
    file.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    config = f"{REPOSITORY}/configs/text_to_text.py:train={file},init_from={base_t5}"

    def run(workdir: Path, devices: int = 1) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "bert_jax", "train", "--config", config]
        command += ["--workdir", str(workdir)]
        command += [f"--config.{key}={value}" for key, value in KEYS.items()]
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)

    return run


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors


@pytest.fixture(scope="module")
def uninterrupted(start, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("uninterrupted") / "run"
    finish(start(workdir))
    return workdir


def test_a_killed_run_is_the_uninterrupted_run(start, uninterrupted, tmp_path):
    process = start(tmp_path / "run")
    while logged_step(tmp_path / "run") < 17:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(start(tmp_path / "run"))
    names = "result.json", "model/model.safetensors", "model/config.json"
    for name in (*names, "predictions/validation.jsonl", "predictions/validation.report.txt"):
        assert (tmp_path / "run" / name).read_bytes() == (uninterrupted / name).read_bytes(), name


def test_eight_devices_compute_the_same(start, uninterrupted, tmp_path):
    finish(start(tmp_path / "run", devices=8))
    assert_same_metrics(tmp_path / "run", uninterrupted)
