"""Learning rates by hand."""

import itertools
import math
import random

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.training.schedule import learning_rate, steps_of_warmup
from bert_jax.training_options import DECAYS, OptimizerOptions


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # google-research/bert: 8 · t / 4 up to step 3, then 8 · (1 - t / 10).
        (
            {"steps": 10, "warmup_steps": 4},
            dict(enumerate([0, 2, 4, 6, 4.8, 4, 3.2, 2.4, 1.6, 0.8, 0, 0])),
        ),
        # Hugging Face: 8 · t / 4 up to step 4, then 8 · (10 - t) / 6.
        (
            {"steps": 10, "warmup_steps": 4, "decay_from": "warmup"},
            dict(enumerate([0, 2, 4, 6, 8, 6.6667, 5.3333, 4, 2.6667, 1.3333, 0, 0])),
        ),
        # (1 + cos(π x)) / 2 at x = 0, 1/4, 1/3, 1/2, 2/3 and 1: 1, 0.8536, 0.75, 0.5, 0.25, 0.
        (
            {"steps": 12, "warmup_steps": 0, "decay": "cosine"},
            {0: 8, 3: 6.8284, 4: 6, 6: 4, 8: 2, 12: 0},
        ),
        (
            {"steps": 15, "warmup_steps": 3, "decay": "cosine", "decay_from": "warmup"},
            {2: 5.3333, 3: 8, 6: 6.8284, 7: 6, 9: 4, 15: 0},
        ),
        # 8 · sqrt(4 / t) from step 4 on.
        (
            {"steps": 100, "warmup_steps": 4, "decay": "inverse_sqrt"},
            {0: 0, 1: 2, 4: 8, 9: 5.3333, 16: 4, 64: 2},
        ),
        (
            {"steps": 4, "warmup_steps": 2, "decay": "constant"},
            dict(enumerate([0, 4, 8, 8, 8])),
        ),
        # Warm-up, stable, decay: the last 4 of 20 steps fall.
        (
            {"steps": 20, "warmup_steps": 2, "decay_ratio": 0.2},
            {0: 0, 1: 4, 2: 8, 15: 8, 16: 8, 17: 6, 18: 4, 20: 0},
        ),
        # 8 · (1 - sqrt(x)) at x = 0, 1/4, 1/2 and 1.
        (
            {"steps": 20, "warmup_steps": 2, "decay": "one_minus_sqrt", "decay_ratio": 0.2},
            {2: 8, 16: 8, 17: 4, 18: 2.3431, 20: 0},
        ),
    ],
)
def test_rates_by_hand(options, expected):
    schedule = jax.jit(learning_rate(8.0, **options))
    assert {step: round(float(schedule(step)), 4) for step in expected} == expected


def rate_by_definition(t, *, steps, warmup_steps, decay, decay_from):
    """Step by step in Python's floats, with a peak of 1."""
    if t < warmup_steps:
        return 1.0 if decay == "constant_inverse_sqrt" else t / warmup_steps
    start = warmup_steps if decay_from == "warmup" else 0
    done = min((t - start) / (steps - start), 1) if steps > start else float(t > start)
    return {
        "linear": 1 - done,
        "cosine": (1 + math.cos(math.pi * done)) / 2,
        "one_minus_sqrt": 1 - math.sqrt(done),
        "inverse_sqrt": math.sqrt(max(warmup_steps, 1) / max(t, warmup_steps, 1)),
        "constant_inverse_sqrt": math.sqrt(max(warmup_steps, 1) / max(t, warmup_steps, 1)),
        "constant": 1.0,
    }[decay]


@pytest.mark.parametrize("decay", DECAYS)
def test_rates_follow_the_definition_at_every_step(decay):
    draw = random.Random(decay)
    lengths = [(1, 0), (1, 1), (2, 1), (7, 7), (40, draw.randrange(40)), (60, 0)]
    shown = np.arange(64)
    for (steps, warmup_steps), decay_from in itertools.product(lengths, ("start", "warmup")):
        options = {
            "steps": steps, "warmup_steps": warmup_steps, "decay": decay, "decay_from": decay_from,
        }  # fmt: skip
        actual = learning_rate(1.0, **options)(shown) * np.ones(64)
        expected = [rate_by_definition(t, **options) for t in shown]
        np.testing.assert_allclose(actual, expected, atol=3e-7, err_msg=str(options))


def test_a_decay_without_an_end_has_no_share():
    with pytest.raises(UserError, match="^optimizer.decay_ratio is 0.1; .*decay=constant has no"):
        OptimizerOptions(decay="constant", decay_ratio=0.1)


def test_the_schedules_of_the_transformer_and_of_t5():
    steps = np.array([1, 100, 3999, 4000, 4001, 9999, 10_000, 40_000, 100_000])
    vaswani = learning_rate(
        (512 * 4000) ** -0.5, steps=100_000, warmup_steps=4000, decay="inverse_sqrt"
    )
    expected = 512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
    np.testing.assert_allclose([vaswani(step) for step in steps], expected, rtol=1e-4)
    t5 = learning_rate(0.01, steps=2**19, warmup_steps=10_000, decay="constant_inverse_sqrt")
    expected = 1 / np.sqrt(np.maximum(steps, 10_000))
    np.testing.assert_allclose([t5(step) for step in steps], expected, rtol=1e-5)
    assert float(t5(0)) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": "step"}, "^optimizer.decay is 'step'; known are linear, cosine, one_minus"),
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
    ("steps", "ratio", "expected"),
    [(0, 0.0, 0), (7, 0.0, 7), (0, 0.1, 34), (0, 0.001, 0), (0, 1.0, 345)],
)
def test_the_length_of_the_warm_up(steps, ratio, expected):
    assert steps_of_warmup(steps, ratio, all_steps=345) == expected


@pytest.mark.parametrize("ratio", [-0.1, 1.5, float("nan")])
def test_a_warm_up_that_is_no_share(ratio):
    message = "^optimizer.warmup_ratio is .*; it must be .*at least 0 and at most 1"
    with pytest.raises(UserError, match=message):
        OptimizerOptions(warmup_ratio=ratio)
