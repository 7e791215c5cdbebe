"""Epochs as steps, and what is due when."""

import math
import random
from fractions import Fraction
from pathlib import Path

import pytest

from bert_jax.config import load_config
from bert_jax.errors import OptionError, UserError
from bert_jax.training_options import OptimizerOptions, TrainOptions, is_due


@pytest.mark.parametrize(
    ("epochs", "examples", "batch", "steps"),
    [
        (3.0, 3668, 32, 345),  # MRPC: 114.6 batches an epoch, the last one partial
        (1.0, 64, 32, 2),
        (1.0, 65, 32, 3),
        (0.5, 65, 32, 2),
        (0.07, 3200, 32, 7),  # 0.07 · 100 = 7.000000000000001
        (0.001, 10, 32, 1),
        (2.5, 1, 32, 3),
    ],
)
def test_epochs_become_steps(epochs, examples, batch, steps):
    options = TrainOptions(steps=0, epochs=epochs, global_batch_size=batch)
    assert options.resolved(examples).steps == steps
    assert options.resolved(examples).eval_every == 500


def test_epochs_and_evaluations_are_exact_fractions():
    draw = random.Random(0)
    for _ in range(150):
        examples, batch = draw.randrange(1, 5000), draw.randrange(1, 70)
        epochs, times = draw.randrange(1, 600) / 100, draw.randrange(1, 9)
        options = TrainOptions(
            steps=0, epochs=epochs, eval_every=0, evaluate_per_epoch=times, global_batch_size=batch
        ).resolved(examples)
        batches = math.ceil(Fraction(examples, batch))
        steps = math.ceil(Fraction(str(epochs)) * batches)
        assert options.steps == steps
        # The n-th evaluation is due in the step in which n / times of an epoch are complete.
        ends = {math.ceil(Fraction(n * batches, times)) for n in range(1, 6 * times + 1)}
        assert due_steps(options.eval_every, steps) == sorted(e for e in ends if e <= steps)


def test_batches_that_grow():
    options = TrainOptions(
        steps=20, global_batch_size=16, batch_warmup=(4, 8), batch_warmup_ratio=0.5
    )
    sizes = [(range(5), 4), (range(5, 10), 8), (range(10, 20), 16)]
    assert list(options.batch_sizes(0, 20)) == sizes
    assert list(options.batch_sizes(7, 12)) == [(range(7, 10), 8), (range(10, 12), 16)]
    assert list(options.batch_sizes(12, 1 << 40)) == [(range(12, 1 << 40), 16)]
    assert list(TrainOptions(global_batch_size=16).batch_sizes(3, 5)) == [(range(3, 5), 16)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_warmup": (5,)}, r"^train.batch_warmup is \(5,\); each size must divide"),
        ({"batch_warmup": (2,), "microbatches": 4}, "be a multiple of train.microbatches, 4"),
        ({"batch_warmup_ratio": 0.0}, "train.batch_warmup and train.batch_warmup_ratio together"),
        ({"batch_warmup": ()}, "train.batch_warmup and train.batch_warmup_ratio together"),
        ({"steps": 0, "epochs": 1.0}, "^train.epochs is 1.0; give train.steps instead"),
    ],
)
def test_batches_that_cannot_grow(options, message):
    with pytest.raises(OptionError, match=message):
        TrainOptions(
            **{"global_batch_size": 16, "batch_warmup": (4, 8), "batch_warmup_ratio": 0.5} | options
        )


def test_numbers_of_steps_stay_as_they_are():
    options = TrainOptions(steps=9, eval_every=4, checkpoint_every=3)
    assert options.resolved(1000) == options
    in_epochs = TrainOptions(
        steps=0, epochs=3.0, eval_every=0, evaluate_per_epoch=2, global_batch_size=10
    )
    in_steps = in_epochs.resolved(100)
    assert (in_steps.steps, in_steps.eval_every) == (30, 5)
    assert in_steps.resolved(7) == in_steps


@pytest.mark.parametrize(
    ("options", "keys", "message"),
    [
        (
            TrainOptions,
            {"steps": 9, "epochs": 3.0},
            "train.epochs is 3.0; leave it out, or train.steps, which is 9",
        ),
        (
            TrainOptions,
            {"eval_every": 4, "evaluate_per_epoch": 1},
            "train.evaluate_per_epoch is 1; leave it out, or train.eval_every, which is 4",
        ),
        (
            OptimizerOptions,
            {"warmup_steps": 100, "warmup_ratio": 0.1},
            "optimizer.warmup_ratio is 0.1; leave it out, or optimizer.warmup_steps, which is 100",
        ),
    ],
)
def test_two_keys_for_the_same_are_refused(options, keys, message):
    with pytest.raises(UserError) as error:
        options(**keys)
    assert str(error.value) == message


def due_steps(every, steps) -> list[int]:
    return [step for step in range(1, steps + 1) if is_due(step, every)]


def test_due_steps():
    assert due_steps(3, 10) == [3, 6, 9]
    assert due_steps(1, 4) == [1, 2, 3, 4]
    assert due_steps(0, 10) == []
    assert due_steps(Fraction(5, 2), 10) == [3, 5, 8, 10]
    assert due_steps(Fraction(1, 2), 3) == [1, 2, 3]


@pytest.mark.parametrize(
    ("times", "examples", "due"),
    [
        (1, 100, [7, 14, 21]),
        (2, 100, [4, 7, 11, 14, 18, 21]),
        (3, 100, [3, 5, 7, 10, 12, 14, 17, 19, 21]),
        (100, 16, [1, 2, 3]),
    ],
)
def test_evaluations_of_an_epoch_are_spread_and_one_is_at_its_end(times, examples, due):
    options = TrainOptions(
        steps=0, epochs=3.0, eval_every=0, evaluate_per_epoch=times, global_batch_size=16
    ).resolved(examples)
    assert due_steps(options.eval_every, options.steps) == due


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("steps", 0, "^train.steps is 0; it must be at least 1, or train.epochs above 0$"),
        (
            "microbatches",
            3,
            "^train.global_batch_size is 32; it must be a multiple of train.microbatches, 3$",
        ),
        ("export", "last", "^train.export is 'last'; known are latest, best$"),
        ("seeds", (1, "two"), "'two'.*; seeds are whole numbers from 0 to 2"),
        ("seeds", (True,), "True.*; seeds are whole"),
        ("seeds", (1, 2, 1), r"^train.seeds is \(1, 2, 1\); seeds must be distinct; leave one out"),
    ],
)
def test_bad_options_name_the_key(field, value, message):
    with pytest.raises(UserError, match=message):
        TrainOptions(**{field: value})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"average_checkpoints": 3},
            "train.average_checkpoints is 3; raise train.keep_checkpoints, 2, to as many",
        ),
        (
            {"average_checkpoints": 2, "export": "best"},
            "train.average_checkpoints is 2; it averages the newest ones: set train.export=latest",
        ),
        (
            {"average_checkpoints": 2, "checkpoint_every": 100},
            "train.average_checkpoints is 2, but 90 steps have 1 checkpoints; lower it, or "
            "set train.checkpoint_every, which is 100",
        ),
        (
            {"average_checkpoints": 2, "checkpoint_every": 0},
            "train.average_checkpoints is 2, but 90 steps have 1 checkpoints; lower it, or "
            "set train.checkpoint_every, which is 0",
        ),
    ],
)
def test_what_cannot_be_averaged(keys, message):
    with pytest.raises(OptionError) as raised:
        TrainOptions(steps=90, **keys).resolved(1000)
    assert str(raised.value) == message


def test_as_many_checkpoints_as_are_averaged():
    options = TrainOptions(steps=90, checkpoint_every=45, average_checkpoints=2)
    assert options.resolved(1000) == options


@pytest.mark.parametrize(
    ("steps", "every", "count", "warning"),
    [
        (300, 60, 5, "5 checkpoints of the last 80% of the run: set train.checkpoint_every to at "
                     "most 7, or train.average_checkpoints=1"),
        (300, 7, 5, ""),
        (300, 60, 1, ""),
        (20, 1, 5, "5 checkpoints of the last 20% of the run: set train.average_checkpoints=1"),
        (105, 10, 2, ""),
        (100, 0, 1, ""),
    ],
)  # fmt: skip
def test_a_mean_of_checkpoints_of_most_of_a_run_is_named(steps, every, count, warning):
    options = TrainOptions(
        steps=steps, checkpoint_every=every, keep_checkpoints=5, average_checkpoints=count
    )
    expected = f"the exported model is the mean of {warning}" if warning else ""
    assert options.average_warning() == expected


@pytest.mark.parametrize("steps", [50, 300, 900, 8000, 100_000])
def test_translation_averages_the_end_of_a_run(steps):
    path = Path(__file__).parents[2] / "configs" / "translation.py"
    config = load_config(f"{path}:steps={steps}")
    assert config.train.average_checkpoints == 5
    assert TrainOptions(**config.train).resolved(1000).average_warning() == ""
