"""Real processes, killed for real: a resumed run is the uninterrupted run, bit for bit."""

import json
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.conftest import REPOSITORY
from tests.runs import logged_step, records_of

pytestmark = pytest.mark.slow

STEPS = 100


@pytest.fixture(scope="module")
def start(train_command):
    """Starts a training and returns its process."""

    def run(workdir: Path, **overrides) -> subprocess.Popen[str]:
        command = train_command(workdir, {"train.steps": STEPS} | overrides)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Output and errors of a process that ends by itself with 0."""
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output, errors


def send_at(process: subprocess.Popen[str], workdir: Path, step: int, number: int) -> None:
    """Sends a signal when a run has logged a step."""
    while logged_step(workdir) < step:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.002)
    process.send_signal(number)


@pytest.fixture(scope="module")
def uninterrupted(start, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("uninterrupted") / "run"
    finish(start(workdir))
    return workdir


def assert_same_run(actual: Path, expected: Path, steps: int = STEPS) -> None:
    """Compares the last checkpoint, the log, the results and the exported model, to the bit."""
    for name in ("state", "position"):
        assert (actual / "checkpoints" / str(steps) / name).is_dir()
    states = [
        ocp.StandardCheckpointer().restore(run.absolute() / "checkpoints" / str(steps) / "state")
        for run in (actual, expected)
    ]
    names = [jax.tree_util.tree_flatten_with_path(state)[0] for state in states]
    assert len(names[0]) == len(names[1]) > 90  # parameters, two moments each, step, counter
    for (path, value), (other_path, other) in zip(*names, strict=True):
        assert path == other_path
        assert np.asarray(value).tobytes() == np.asarray(other).tobytes(), path
    positions = [
        json.loads((run / "checkpoints" / str(steps) / "position" / "metadata").read_text())
        for run in (actual, expected)
    ]
    assert positions[0] == positions[1]
    assert positions[0]["next_example"] == 8 * steps
    assert records_of(actual) == records_of(expected)
    for name in ("result.json", "model/model.safetensors", "model/config.json"):
        assert (actual / name).read_bytes() == (expected / name).read_bytes()


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_a_run_killed_three_times_is_the_uninterrupted_run(
    start, uninterrupted, packed_overrides, tmp_path, kind
):
    """First before a checkpoint, then at random steps."""
    overrides = packed_overrides if kind == "packed" else {}
    if overrides:
        uninterrupted = tmp_path / "whole"
        finish(start(uninterrupted, **overrides))
    workdir, resumed_from = tmp_path / "run", 0
    for step in (2, *sorted(random.Random(20).sample(range(10, STEPS - 20), 2))):
        process = start(workdir, **overrides)
        send_at(process, workdir, step, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        if step == 2:
            shutil.rmtree(workdir / "checkpoints")
            continue
        whole = [int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdecimal()]
        assert resumed_from <= max(whole, default=0) <= logged_step(workdir)
        resumed_from = max(whole, default=0)
    assert resumed_from > 0
    _, errors = finish(start(workdir, **overrides))
    assert f"resuming {workdir} at step" in errors
    assert "waiting" not in errors
    assert_same_run(workdir, uninterrupted)


def test_of_two_in_one_work_directory_the_second_is_refused(start, uninterrupted, tmp_path):
    workdir = tmp_path / "run"
    first = start(workdir)
    while logged_step(workdir) < 2:
        assert first.poll() is None
        time.sleep(0.002)
    first.send_signal(signal.SIGSTOP)  # it would be too quick
    second = start(workdir)
    _, errors = second.communicate()
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert errors.splitlines()[-1].startswith(
        f"bert-jax: {workdir} is being written by process {first.pid} on "
    )
    finish(first)
    assert_same_run(workdir, uninterrupted)
    assert not (workdir / ".bert_jax.lock").exists()


def test_a_run_that_is_stopped_saves_and_exits_75(start, tmp_path):
    """With micro-batches, and other multiples of what is logged, evaluated and saved."""
    overrides = {
        "train.steps": 30,
        "train.microbatches": 2,
        "train.log_every": 4,
        "train.eval_every": 9,
        "train.checkpoint_every": 7,
    }
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    finish(start(whole, **overrides))
    process = start(parts, **overrides)
    send_at(process, parts, 3, signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 75, errors
    saved = max(int(path.name) for path in (parts / "checkpoints").iterdir())
    assert saved == logged_step(parts) >= 3
    assert errors.strip().splitlines()[-1] == (
        f"bert-jax: stopped by a signal after saving step {saved}; run the same command to continue"
    )
    _, errors = finish(start(parts, **overrides))
    assert f"resuming {parts} at step {saved}" in errors
    models = [workdir / "model" / "model.safetensors" for workdir in (whole, parts)]
    assert models[0].read_bytes() == models[1].read_bytes()
    expected, logged = (
        {(r["step"], r["split"]): r for r in records_of(workdir)} for workdir in (whole, parts)
    )
    # The stopped run has a few more lines: at its last step and after its start.
    assert {key: logged[key] for key in expected} == expected


def test_another_seed_and_another_rate_find_the_compiled_step(start, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    actual = []
    for number, changes in enumerate(
        ({}, {"seed": 5, "optimizer.learning_rate": 1e-2, "optimizer.warmup_steps": 3})
    ):
        finish(start(tmp_path / str(number), **{"train.steps": 6} | changes))
        programs = [path.name for path in (tmp_path / "compiled").glob("jit_step-*-cache")]
        actual.append(sorted(programs))
    assert len(actual[0]) == 1
    assert actual[0] == actual[1]


@pytest.fixture
def finished(uninterrupted, tmp_path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(uninterrupted, tmp_path / "run"))


def test_a_finished_run_that_is_started_again_computes_nothing(start, finished, uninterrupted):
    free = {"train.log_every": 7, "train.keep_checkpoints": 1, "data.evaluation_batches": 1}
    output, _ = finish(start(finished, **free))
    stored = json.loads((uninterrupted / "result.json").read_text())
    assert stored.pop("warnings")  # few validation documents, and few steps
    assert stored.pop("exported_step") == STEPS
    assert json.loads(output.splitlines()[-1]) == stored
    assert_same_run(finished, uninterrupted)
    assert json.loads((finished / "config.json").read_text())["train"]["log_every"] == 7


def test_a_finished_run_with_more_steps_trains_on(start, finished, tmp_path):
    """Killed on the way, it computes what the uninterrupted run computes."""
    longer, killed = STEPS + 30, Path(shutil.copytree(finished, tmp_path / "killed"))
    _, errors = finish(start(finished, **{"train.steps": longer}))
    assert f"{STEPS} steps before, {longer} now, {STEPS} of them done" in errors
    process = start(killed, **{"train.steps": longer})
    send_at(process, killed, STEPS + 12, signal.SIGKILL)
    process.communicate()
    assert not (killed / "result.json").exists()
    _, errors = finish(start(killed, **{"train.steps": longer}))
    assert "steps before" not in errors
    assert "is finished already" not in errors
    assert_same_run(killed, finished, longer)
    _, errors = finish(start(killed, **{"train.steps": longer}))
    assert f"{killed} is finished already" in errors


def test_a_work_directory_of_another_config_is_refused(start, finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    process = start(finished, **{"optimizer.learning_rate": 0.5})
    output, errors = process.communicate()
    assert process.returncode == 2
    assert output == ""
    assert errors.splitlines() == [
        "--config.optimizer.warmup_steps replaces optimizer.warmup_ratio=0.011111 of "
        f"{REPOSITORY}/configs/pretrain.py",
        f"bert-jax: {finished} belongs to another config: optimizer.learning_rate was 0.001 and "
        "is 0.5 now; use another --workdir, or the old values",
    ]
    after = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    assert after == before


def test_a_damaged_checkpoint_is_named_in_one_line(start, finished):
    (finished / "result.json").unlink()
    shutil.rmtree(finished / "checkpoints" / str(STEPS) / "state" / "d")
    output, errors = start(finished).communicate()
    assert output == ""
    # Threads of tensorstore may print around our line that their event loop is closed.
    (line,) = [line for line in errors.splitlines() if line.startswith("bert-jax: ")]
    assert f"cannot read the checkpoint {finished}/checkpoints/{STEPS}" in line
    assert re.search("it is damaged: remove this directory to continue from step [0-9]+$", line)
    # And that is what happens.
    shutil.rmtree(finished / "checkpoints" / str(STEPS))
    _, errors = finish(start(finished))
    assert "resuming" in errors
