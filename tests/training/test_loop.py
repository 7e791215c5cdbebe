"""The loop with a task of five parameters: order of events, resuming, early stopping, divergence.

A run of `LineTask` takes less than a second.
"""

import dataclasses
import functools
import json
import os
import shutil
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.inference import evaluation
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sharding.stopping import Interrupted
from bert_jax.tasks.base.task import EvalResult
from bert_jax.training.loop import DivergedError, train
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training_options import OptimizerOptions, TrainOptions
from tests.runs import records_of
from tests.training.line_task import ROWS, WIDTH, LineTask

MESH = make_mesh(MeshShape(), jax.devices()[:1])


def evaluate(params, directory):
    """How far the parameters are from the line; "directory" is not used."""
    kernel, bias = params["classifier"]["kernel"][:, 0], params["classifier"]["bias"][0]
    error = float(np.abs(np.r_[kernel, bias] - [1, -2, 3, -4, 5]).max())
    return EvalResult({"error": error}, description=None)


@pytest.fixture
def run(tmp_path):
    """Trains in `tmp_path`, or in a folder there."""

    def train_line(
        optimizer=None, initial_params=None, folder=".", evaluate=evaluate, schedule=None, **keys
    ):
        options = TrainOptions(global_batch_size=ROWS, **keys)
        chosen = make_optimizer(OptimizerOptions(**optimizer or {}), options.steps)
        if schedule is not None:
            chosen = dataclasses.replace(chosen, schedule=schedule)
        return train(
            LineTask(),
            evaluate,
            optimizer=chosen,
            options=options,
            mesh=MESH,
            workdir=tmp_path / folder,
            seed=0,
            initial_params=initial_params,
        ).metrics

    return train_line


def events_of(workdir) -> list[tuple[int, str]]:
    return [(record["step"], record["split"]) for record in records_of(workdir)]


def steps_of(workdir) -> list[int]:
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.mark.slow
def test_steps_of_logs_evaluations_and_checkpoints(run, tmp_path):
    validation = run(steps=11, log_every=3, eval_every=4, checkpoint_every=5, keep_checkpoints=9)
    # The first step is logged at once; an evaluation or a checkpoint logs all steps before it.
    assert events_of(tmp_path) == [
        (1, "train"), (3, "train"), (4, "train"), (4, "validation"), (5, "train"), (6, "train"),
        (8, "train"), (8, "validation"), (9, "train"), (10, "train"), (11, "train"),
        (11, "validation"),
    ]  # fmt: skip
    assert steps_of(tmp_path) == [5, 10, 11]
    first, *_, last = records_of(tmp_path)
    assert last == {"step": 11, "split": "validation", **validation}
    assert first["root"] == pytest.approx(first["loss"] ** 0.5)  # as the task's summary has it

    # 0: only at the end, and the log also at the first step.
    run(steps=4, log_every=0, eval_every=0, checkpoint_every=0, folder="rare")
    assert events_of(tmp_path / "rare") == [(1, "train"), (4, "train"), (4, "validation")]
    assert steps_of(tmp_path / "rare") == [4]


def test_waiting_for_the_devices_before_a_checkpoint_counts_once(run, tmp_path, monkeypatch):
    seconds = 0.0

    def summary(self, metrics):
        nonlocal seconds
        seconds += 10  # until the devices have computed these metrics
        return metrics

    monkeypatch.setattr(LineTask, "summary", summary)
    monkeypatch.setattr(time, "perf_counter", lambda: seconds)
    run(steps=4, log_every=4, eval_every=0, checkpoint_every=3)
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    speeds = [record["tokens_per_second"] for record in records if record["split"] == "train"]
    tokens = ROWS * WIDTH
    assert speeds == [tokens / 10, 2 * tokens / 10, tokens / 10]  # steps 1, 2 and 3, 4


def test_each_step_logs_then_evaluates_then_saves(run, tmp_path):
    seen = []

    def watch(params, directory):
        written = (tmp_path / "metrics.jsonl").read_text().splitlines()
        (step, split), saved = events_of(tmp_path)[-1], tmp_path / "checkpoints"
        seen.append((step, split, len(written), (saved / str(step)).exists()))
        return evaluate(params, directory)

    run(steps=3, log_every=1, eval_every=1, checkpoint_every=1, evaluate=watch)
    assert seen == [(1, "train", 1, False), (2, "train", 3, False), (3, "train", 5, False)]


def state_of(workdir, step: int) -> list[bytes]:
    """Parameters, moments and counter of a checkpoint, and its position, to the bit."""
    place = workdir.absolute() / "checkpoints" / str(step)
    state = ocp.StandardCheckpointer().restore(place / "state")
    position = (place / "position" / "metadata").read_bytes()
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)] + [position]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "counters"), [("adamw", 1), ("adafactor", 2)])
def test_a_resumed_run_is_the_uninterrupted_run_to_the_bit(run, tmp_path, name, counters):
    optimizer = {"name": name, "learning_rate": 0.1, "warmup_steps": 2}
    options = {
        "steps": 9, "log_every": 1, "eval_every": 2, "checkpoint_every": 3, "keep_checkpoints": 9,
        "microbatches": 2,
    }  # fmt: skip
    whole = run(optimizer, folder="whole", **options)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for later in (6, 9):  # as if killed after step 5: the log is ahead of the checkpoint
        shutil.rmtree(tmp_path / "again" / "checkpoints" / str(later))
    assert run(optimizer, folder="again", **options) == whole
    assert records_of(tmp_path / "again") == records_of(tmp_path / "whole")
    for step in (6, 9):
        states = [state_of(tmp_path / folder, step) for folder in ("again", "whole")]
        assert len(states[0]) == 3 * 2 + counters + 1
        assert states[0] == states[1]
    # It has learned, and the dropout of each step is another one.
    losses = [row["loss"] for row in records_of(tmp_path / "whole") if row["split"] == "train"]
    assert len(set(losses)) == 9


@pytest.mark.slow
def test_a_run_with_another_number_of_steps_follows_the_new_schedule_from_here_on(run, tmp_path):
    optimizer = {"learning_rate": 0.1, "warmup_ratio": 0.25, "decay_from": "warmup"}
    options = {"log_every": 1, "eval_every": 2, "checkpoint_every": 3, "keep_checkpoints": 9}
    short, long = (
        make_optimizer(OptimizerOptions(**optimizer), steps).schedule for steps in (4, 9)
    )
    run(
        optimizer, folder="whole", steps=9, **options,
        schedule=lambda step: jnp.where(step < 4, short(step), long(step)),
    )  # fmt: skip
    run(optimizer, folder="parts", steps=4, **options)
    run(optimizer, folder="parts", steps=9, **options)
    rates = [row["learning_rate"] for row in records_of(tmp_path / "parts") if "loss" in row]
    np.testing.assert_allclose(  # 8 · (9 - 5) / 7 … of a peak of 0.1 after a warm-up of 2 steps
        rates, [0, 0.1, 0.2 / 3, 0.1 / 3, 0.5 / 7, 0.4 / 7, 0.3 / 7, 0.2 / 7, 0.1 / 7], rtol=1e-5
    )
    assert state_of(tmp_path / "parts", 9) == state_of(tmp_path / "whole", 9)
    assert records_of(tmp_path / "parts") == records_of(tmp_path / "whole")
    # Shorter: what is done is evaluated, and logged if it was not.
    for later in (6, 9):
        shutil.rmtree(tmp_path / "parts" / "checkpoints" / str(later))
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "4")
    for _ in range(2):
        run(optimizer, folder="parts", steps=3, **options)
        assert events_of(tmp_path / "parts")[-2:] == [(3, "train"), (3, "validation")]


def test_a_loss_that_is_not_finite_stops_the_run(run, tmp_path):
    # The rate is 0 at step 1 and absurd at step 2, which no norm of the parameters survives.
    optimizer = {"learning_rate": 1e30, "warmup_steps": 2}
    with pytest.raises(DivergedError) as raised:
        run(optimizer, steps=50, log_every=10, checkpoint_every=1, keep_checkpoints=5)
    assert str(raised.value) == (
        "a parameter after step 2 is not finite; the last good checkpoint is from step 1; start "
        "another run with a lower learning rate or a longer warm-up"
    )
    assert steps_of(tmp_path) == [1]
    assert max(step for step, _ in events_of(tmp_path)) <= 2

    nan = {"classifier": {"kernel": np.full((WIDTH, 1), np.nan), "bias": np.zeros(1)}}
    nan = jax.tree.map(np.float32, nan)
    with pytest.raises(DivergedError) as raised:
        run(steps=5, checkpoint_every=1, initial_params=nan, folder="nan")
    assert str(raised.value) == (
        "the loss of step 1 is not finite; there is no checkpoint yet; check the parameters that "
        "the run starts from, its data and the options of its loss"
    )
    assert steps_of(tmp_path / "nan") == []


def test_training_starts_with_the_initial_parameters(run):
    line = {"classifier": {"kernel": np.c_[[1.0, -2, 3, -4]], "bias": np.r_[4.5]}}
    line = jax.tree.map(np.float32, line)
    assert run({"learning_rate": 0.0}, steps=1, initial_params=line) == {"error": 0.5}


def test_early_stopping_ends_a_run_and_says_so(run, tmp_path, capsys):
    # A rate of 0: no evaluation is better than the first, at step 2.
    options = {"steps": 50, "eval_every": 2, "checkpoint_every": 5, "log_every": 0, "patience": 3}
    validation = run({"learning_rate": 0.0}, **options)
    assert events_of(tmp_path) == [
        (1, "train"), (2, "train"), (2, "validation"), (4, "train"), (4, "validation"),
        (5, "train"), (6, "train"), (6, "validation"), (8, "train"), (8, "validation"),
    ]  # fmt: skip
    assert steps_of(tmp_path) == [5, 8]
    errors = capsys.readouterr().err
    assert f"stopped at step 8: no better error than {validation['error']:.4f}" in errors
    assert " in 3 evaluations" in errors
    # Resumed from step 5 it stops at the same step; started again, it knows that it is over.
    before = records_of(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints" / "8")
    for _ in range(2):
        assert run({"learning_rate": 0.0}, **options) == validation
        assert records_of(tmp_path) == before
        assert steps_of(tmp_path) == [5, 8]


def test_the_best_model_is_saved_if_it_is_to_be_exported(run, tmp_path):
    errors = iter([5.0, 1.0, 4.0, 3.0])  # at steps 3, 6, 9, 12
    run(
        steps=12, eval_every=3, checkpoint_every=5, keep_checkpoints=1, export="best",
        evaluate=lambda params, directory: EvalResult({"error": next(errors)}, None),
    )  # fmt: skip
    checkpoints = RunCheckpoints(tmp_path, keep=1, best_metric=("error", False), read_only=True)
    assert checkpoints.step_of("best") == 6
    checkpoints.close()
    assert steps_of(tmp_path) == [6, 12]


@pytest.mark.slow
def test_of_equally_good_models_a_stopped_run_exports_the_same(run, tmp_path):
    options = {"steps": 12, "eval_every": 3, "checkpoint_every": 50, "export": "best"}
    errors = {3: 5.0, 6: 1.0, 9: 1.0, 12: 3.0}

    def judge(params, directory, stop_at=0):
        step = events_of(folder)[-1][0]
        if step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return EvalResult({"error": errors[step]}, None)

    actual = []
    for name, stop_at in (("whole", 0), ("stopped", 9)):
        folder = tmp_path / name
        if stop_at:
            with pytest.raises(Interrupted):
                run(folder=name, evaluate=functools.partial(judge, stop_at=stop_at), **options)
        run(folder=name, evaluate=judge, **options)
        checkpoints = RunCheckpoints(folder, keep=2, best_metric=("error", False), read_only=True)
        actual.append(checkpoints.step_of("best"))
        checkpoints.close()
    assert actual == [6, 6]


@pytest.mark.slow
def test_a_stopped_run_keeps_the_same_checkpoints_to_average(run, tmp_path):
    options = {
        "steps": 9, "eval_every": 1, "checkpoint_every": 2, "keep_checkpoints": 3,
        "average_checkpoints": 3,
    }  # fmt: skip

    def stop(params, directory):
        if events_of(tmp_path)[-1][0] in (5, 7):
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(params, directory)

    for kept in ([2, 4, 5], [4, 6, 7]):
        with pytest.raises(Interrupted):
            run(evaluate=stop, **options)
        assert steps_of(tmp_path) == kept
    run(**options)
    assert steps_of(tmp_path) == [6, 8, 9]


@pytest.mark.slow
def test_pretraining_with_frozen_parameters_is_saved_and_resumed(
    make_tiny_task, tiny_config, tmp_path
):
    task = make_tiny_task(tiny_config)
    optimizer = OptimizerOptions(learning_rate=1e-2, decay="constant", freeze_layers=1)

    def pretrain():
        return train(
            task,
            lambda params, _: evaluation.evaluate(task, params, MESH),
            optimizer=make_optimizer(optimizer, 4),
            options=TrainOptions(
                global_batch_size=8, steps=4, checkpoint_every=2, keep_checkpoints=9
            ),
            mesh=MESH,
            workdir=tmp_path,
            seed=0,
        )

    whole = pretrain()
    shutil.rmtree(tmp_path / "checkpoints" / "4")
    assert pretrain() == whole
    assert steps_of(tmp_path) == [2, 4]
