"""All verbs with a bucket, by real processes: the same run as on this machine's disk."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_jax.files import as_path, upload
from tests.runs import completed, records_of

pytestmark = pytest.mark.slow

STEPS = 30


def bert_jax(*arguments):
    done = completed([sys.executable, "-m", "bert_jax", *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(command):
    done = completed(command)
    assert done.returncode == 0, done.stderr


def has_checkpoint(workdir):
    directory = workdir / "checkpoints"
    return directory.is_dir() and any(path.name.isdecimal() for path in directory.iterdir())


def test_a_run_in_a_bucket_is_the_run_on_disk(bucket, train_command, tiny_corpus, tmp_path):
    overrides = {"train.steps": STEPS}
    here, there = tmp_path / "run", as_path(f"{bucket}/run")
    train(train_command(here, overrides))

    corpus = as_path(f"{bucket}/corpus")
    upload(Path(tiny_corpus), corpus)
    command = train_command(there, overrides | {"data.corpus": str(corpus)})
    # Stopped by a signal after its first checkpoint; then the same command again.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not has_checkpoint(there):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 75, errors
    train(command)

    assert records_of(there) == records_of(here)
    for name in ("result.json", "model/model.safetensors", "model/config.json", "data.json"):
        assert (there / name).read_bytes() == (here / name).read_bytes(), name
    assert (there / "curves.png").is_file()
    assert any(path.name.startswith("events") for path in (there / "tensorboard").iterdir())

    metrics = json.loads(bert_jax("evaluate", "--workdir", there).splitlines()[-1])
    result = json.loads((here / "result.json").read_text())
    assert metrics["mlm_loss"] == result["mlm_loss"]
    bert_jax("export", "--workdir", there, "--output", f"{bucket}/exported")
    exported = as_path(f"{bucket}/exported/model.safetensors").read_bytes()
    assert exported == (here / "model" / "model.safetensors").read_bytes()

    # From there a second phase begins.
    overrides |= {"train.steps": 1, "optimizer.warmup_steps": 0, "init_from": str(there)}
    train(train_command(tmp_path / "next", overrides))


def test_a_bucket_that_is_not_there_is_one_line(store, train_command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = train_command("gs://bucket/run", {"data.corpus": "gs://other/corpus"})
    done = completed(command)
    assert done.returncode == 2
    *notices, line = done.stderr.splitlines()
    assert all(notice.startswith("--config.") for notice in notices)
    assert line.startswith("bert-jax: gs://other/corpus: not a finished corpus: it does not exist")


def test_a_store_that_does_not_answer_is_one_line(tmp_path):
    done = completed(
        [
            sys.executable,
            "-m",
            "bert_jax",
            "export",
            "--workdir",
            "gs://bucket/run",
            "--output",
            "a",
        ],
        env=os.environ | {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"},  # a closed port
        cwd=tmp_path,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("bert-jax: gs://bucket/run/config.json: cannot be reached: no answer wi")
