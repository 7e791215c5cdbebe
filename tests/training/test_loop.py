"""The loop in this process: what it logs and saves when, and how it stops at a loss of NaN."""

import json
import shutil

import jax
import numpy as np
import pytest

from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.models.bert import abstract_params
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.loop import DivergedError, train
from bert_jax.training.optimizer import OptimizerOptions
from bert_jax.training.options import TrainOptions

pytestmark = pytest.mark.slow


@pytest.fixture
def run(make_tiny_task, tiny_config, tmp_path):
    """Trains eight rows a step in `tmp_path`."""

    def train_tiny(optimizer=None, initial_params=None, **options):
        task = make_tiny_task(tiny_config)
        mesh = make_mesh(MeshShape(), jax.devices()[:1])
        return train(
            task,
            lambda params, directory: task.evaluate(params, mesh, directory),
            optimizer_options=OptimizerOptions(**optimizer or {}),
            options=TrainOptions(global_batch_size=8, **options),
            mesh=mesh,
            workdir=tmp_path,
            seed=0,
            initial_params=initial_params,
        )

    return train_tiny


def records_of(tmp_path) -> list[tuple[int, str]]:
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    return [(record["step"], record["split"]) for record in map(json.loads, lines)]


def steps_of(tmp_path) -> list[int]:
    return sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())


def test_what_is_logged_evaluated_and_saved_when(run, tmp_path):
    validation = run(steps=11, log_every=3, eval_every=4, checkpoint_every=5, keep_checkpoints=9)
    # The first step is logged at once; what an evaluation or a checkpoint covers is read before it.
    assert records_of(tmp_path) == [
        (1, "train"), (3, "train"), (4, "train"), (4, "validation"), (5, "train"), (6, "train"),
        (8, "train"), (8, "validation"), (9, "train"), (10, "train"), (11, "train"), (11, "validation"),
    ]  # fmt: skip
    assert steps_of(tmp_path) == [5, 10, 11]
    last = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert validation == {k: v for k, v in last.items() if k not in ("step", "split")}
    assert validation["mlm_perplexity"] == pytest.approx(np.exp(validation["mlm_loss"]))


def test_zero_means_only_at_the_end(run, tmp_path):
    run(steps=4, log_every=0, eval_every=0, checkpoint_every=0)
    assert records_of(tmp_path) == [(1, "train"), (4, "train"), (4, "validation")]
    assert steps_of(tmp_path) == [4]


def test_an_absurd_learning_rate_is_stopped(run, tmp_path, make_tiny_task, tiny_config):
    # The rate is 0 at step 1 and absurd at step 2, which no norm of the parameters survives.
    optimizer = {"learning_rate": 1e30, "warmup_steps": 2}
    with pytest.raises(DivergedError) as raised:
        run(optimizer, steps=50, log_every=10, checkpoint_every=1, keep_checkpoints=5)
    message = str(raised.value)
    assert message.startswith("a parameter after step 2 is not finite; ")
    assert "; the last good checkpoint is that of step 1; start another --workdir" in message
    assert "\n" not in message
    assert steps_of(tmp_path) == [1]
    assert max(step for step, _ in records_of(tmp_path)) <= 2
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        abstract_params(make_tiny_task(tiny_config).module),
    )
    checkpoints = RunCheckpoints(tmp_path, keep=2, best_metric=("mlm_loss", False))
    params = checkpoints.restore_params(1, wanted)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
    checkpoints.close()


def test_parameters_that_are_no_numbers_are_stopped_before_any_checkpoint(
    run, tmp_path, make_tiny_task, tiny_config
):
    nothing = jax.tree.map(
        lambda leaf: np.full(leaf.shape, np.nan, np.float32),
        abstract_params(make_tiny_task(tiny_config).module),
    )
    with pytest.raises(DivergedError, match=r"loss of step 1 is not finite; .* that of no step; "):
        run(steps=5, checkpoint_every=1, initial_params=nothing)
    assert steps_of(tmp_path) == []


def test_training_begins_with_the_given_parameters(run, make_tiny_task, tiny_config):
    ones = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, np.float32),
        abstract_params(make_tiny_task(tiny_config).module),
    )
    found = run({"learning_rate": 0.0}, steps=1, initial_params=ones)
    # With zeros everywhere, all words and both labels are equally likely.
    assert found["mlm_loss"] == pytest.approx(np.log(40), rel=1e-6)
    assert found["nsp_loss"] == pytest.approx(np.log(2), rel=1e-6)


def test_patience_ends_a_run_and_says_so(run, tmp_path, capsys):
    # A rate of 0: no evaluation is better than the first, at step 2.
    options = {"steps": 50, "eval_every": 2, "checkpoint_every": 5, "log_every": 0, "patience": 3}
    validation = run({"learning_rate": 0.0}, **options)
    assert records_of(tmp_path) == [
        (1, "train"), (2, "train"), (2, "validation"), (4, "train"), (4, "validation"), (5, "train"),
        (6, "train"), (6, "validation"), (8, "train"), (8, "validation"),
    ]  # fmt: skip
    assert steps_of(tmp_path) == [5, 8]
    said = capsys.readouterr().err
    assert "stopped at step 8: no better mlm_loss than 3." in said
    assert " in 3 evaluations" in said
    # Started again, it knows that it is over.
    before = (tmp_path / "metrics.jsonl").read_text()
    assert run({"learning_rate": 0.0}, **options) == validation
    assert (tmp_path / "metrics.jsonl").read_text() == before
    assert steps_of(tmp_path) == [5, 8]


def test_the_best_model_is_saved_where_it_is_to_be_exported(run, tmp_path):
    optimizer = {"learning_rate": 1.0, "warmup_steps": 12}
    run(optimizer, steps=12, eval_every=2, checkpoint_every=5, keep_checkpoints=1, export="best")
    records = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    losses = {one["step"]: one["mlm_loss"] for one in records if one["split"] == "validation"}
    best = min(losses, key=losses.get)
    # A step that is no multiple of five, and not the last, which would be saved anyhow.
    assert best not in (10, 12)
    checkpoints = RunCheckpoints(tmp_path, keep=1, best_metric=("mlm_loss", False), read_only=True)
    assert checkpoints.step_of("best") == best
    checkpoints.close()
    assert steps_of(tmp_path) == [best, 12]


def test_evaluations_of_an_epoch(run, tmp_path):
    # Five batches an epoch, two evaluations: in the middle of the third batch and at the end.
    options = TrainOptions(
        steps=0, epochs=2.0, eval_every=0, evaluate_per_epoch=2, global_batch_size=8
    ).resolved(40)
    run(steps=options.steps, eval_every=options.eval_every, checkpoint_every=4, log_every=0)
    evaluated = [step for step, split in records_of(tmp_path) if split == "validation"]
    assert evaluated == [3, 5, 8, 10]


@pytest.mark.parametrize("frozen", [{"freeze_encoder": True}, {"freeze_layers": 1}])
def test_a_run_with_frozen_parameters_is_saved_and_resumed(run, tmp_path, frozen):
    optimizer = {"learning_rate": 1e-2, "decay": "constant", **frozen}
    whole = run(optimizer, steps=4, checkpoint_every=2, keep_checkpoints=9)
    shutil.rmtree(tmp_path / "checkpoints" / "4")
    assert run(optimizer, steps=4, checkpoint_every=2, keep_checkpoints=9) == whole
    assert steps_of(tmp_path) == [2, 4]
