"""Learning rates by hand."""

import itertools
import math
import random

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.training.schedule import DECAYS, learning_rate, steps_of_warmup


def rates(steps_shown, **options) -> list[float]:
    schedule = jax.jit(learning_rate(8.0, **options))
    return [round(float(schedule(step)), 4) for step in steps_shown]


def test_linear_decay_from_the_start_falls_at_the_end_of_the_warm_up():
    # google-research/bert: 8 · t / 4 up to step 3, then 8 · (1 - t / 10).
    found = rates(range(12), steps=10, warmup_steps=4)
    assert found == [0, 2, 4, 6, 4.8, 4, 3.2, 2.4, 1.6, 0.8, 0, 0]


def test_linear_decay_from_the_warm_up_does_not_fall():
    # Hugging Face: 8 · t / 4 up to step 4, then 8 · (10 - t) / 6.
    found = rates(range(12), steps=10, warmup_steps=4, decay_from="warmup")
    assert found == [0, 2, 4, 6, 8, 6.6667, 5.3333, 4, 2.6667, 1.3333, 0, 0]


def test_cosine_decay():
    # (1 + cos(π x)) / 2 at x = 0, 1/4, 1/3, 1/2, 2/3 and 1: 1, 0.8536, 0.75, 0.5, 0.25, 0.
    assert rates([0, 3, 4, 6, 8, 12], steps=12, warmup_steps=0, decay="cosine") == [
        8, 6.8284, 6, 4, 2, 0,
    ]  # fmt: skip
    assert rates([1, 2, 3, 4, 6, 12], steps=12, warmup_steps=3, decay="cosine") == [
        2.6667, 5.3333, 6.8284, 6, 4, 0,
    ]  # fmt: skip
    from_warmup = {"steps": 15, "warmup_steps": 3, "decay": "cosine", "decay_from": "warmup"}
    assert rates([2, 3, 6, 7, 9, 15], **from_warmup) == [5.3333, 8, 6.8284, 6, 4, 0]


def test_inverse_square_root_decay():
    # 8 · sqrt(4 / t) from step 4 on.
    options = {"steps": 100, "warmup_steps": 4, "decay": "inverse_sqrt"}
    assert rates([0, 1, 4, 9, 16, 64], **options) == [0, 2, 8, 5.3333, 4, 2]
    options["warmup_steps"] = 0
    assert rates([0, 1, 4, 16], **options) == [8, 8, 4, 2]


def test_constant_rate():
    assert rates(range(5), steps=4, warmup_steps=2, decay="constant") == [0, 4, 8, 8, 8]


def test_without_a_warm_up_the_first_step_has_the_peak():
    assert rates(range(5), steps=4, warmup_steps=0) == [8, 6, 4, 2, 0]


def test_a_warm_up_as_long_as_the_training():
    for decay_from in ("start", "warmup"):
        found = rates(range(4), steps=4, warmup_steps=4, decay_from=decay_from)
        assert found == [0, 2, 4, 6]


@pytest.mark.parametrize("decay", ["linear", "cosine", "inverse_sqrt", "constant"])
@pytest.mark.parametrize("decay_from", ["start", "warmup"])
def test_rates_are_finite_and_within_bounds(decay, decay_from):
    schedule = learning_rate(1e-3, steps=50, warmup_steps=10, decay=decay, decay_from=decay_from)
    found = np.array([float(schedule(step)) for step in range(60)])
    assert np.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() <= 1e-3 * (1 + 1e-6)


def rate_by_definition(t, *, steps, warmup_steps, decay, decay_from):
    """Step by step in Python's floats, with a peak of 1."""
    if t < warmup_steps:
        return t / warmup_steps
    start = warmup_steps if decay_from == "warmup" else 0
    done = min((t - start) / (steps - start), 1) if steps > start else float(t > start)
    return {
        "linear": 1 - done,
        "cosine": (1 + math.cos(math.pi * done)) / 2,
        "inverse_sqrt": math.sqrt(max(warmup_steps, 1) / max(t, warmup_steps, 1)),
        "constant": 1.0,
    }[decay]


@pytest.mark.parametrize("decay", DECAYS)
def test_rates_are_those_of_the_definition_at_every_step(decay):
    draw = random.Random(decay)
    lengths = [(1, 0), (1, 1), (2, 1), (7, 7), (40, draw.randrange(40)), (60, 0)]
    shown = np.arange(64)
    for (steps, warmup_steps), decay_from in itertools.product(lengths, ("start", "warmup")):
        options = {
            "steps": steps, "warmup_steps": warmup_steps, "decay": decay, "decay_from": decay_from,
        }  # fmt: skip
        found = learning_rate(1.0, **options)(shown) * np.ones(64)
        expected = [rate_by_definition(t, **options) for t in shown]
        np.testing.assert_allclose(found, expected, atol=3e-7, err_msg=str(options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": "step"}, "^optimizer.decay is 'step'; known are linear, cosine, inverse"),
        ({"decay_from": "end"}, "^optimizer.decay_from is 'end'; known are start, warmup"),
        (
            {"warmup_steps": 11},
            "^optimizer.warmup_steps is 11; it must lie between 0 and train.steps, 10; or give",
        ),
        ({"warmup_steps": -1}, "^optimizer.warmup_steps is -1; it must lie between 0 and"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UserError, match=message):
        learning_rate(1.0, **{"steps": 10, "warmup_steps": 0} | options)


@pytest.mark.parametrize(
    ("steps", "ratio", "found"),
    [(0, 0.0, 0), (7, 0.0, 7), (0, 0.1, 34), (0, 0.001, 0), (0, 1.0, 345)],
)
def test_the_length_of_the_warm_up(steps, ratio, found):
    assert steps_of_warmup(steps, ratio, all_steps=345) == found


def test_a_warm_up_that_is_set_twice_or_is_no_share():
    with pytest.raises(UserError) as raised:
        steps_of_warmup(100, 0.1, 345)
    assert (
        str(raised.value)
        == "optimizer.warmup_ratio is 0.1; set it or optimizer.warmup_steps (100) to 0"
    )
    for ratio in (-0.1, 1.5, float("nan")):
        with pytest.raises(
            UserError, match="^optimizer.warmup_ratio is .*; it must be .*at least 0 and at most 1"
        ):
            steps_of_warmup(0, ratio, 345)
