"""Differences and what they are measured by."""

import math

import numpy as np

from bert_jax.parity.quantities import (
    GRADIENT,
    HIDDEN_STATES,
    LOSS,
    difference,
    gradient_scales,
)


def test_a_difference_is_the_largest_and_the_mean_absolute_one():
    found = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    expected = np.array([[1.0, 2.5], [3.0, 3.0]], np.float32)
    entry = difference(HIDDEN_STATES, "layer 0", "short", found, expected)
    assert (entry.maximum, entry.mean, entry.count, entry.judged) == (1.0, 0.375, 4, 1.0)


def test_a_scale_divides_only_what_is_judged():
    entry = difference(GRADIENT, "a.weight", "short", np.array([5.0]), np.array([4.0]), scale=8.0)
    assert (entry.maximum, entry.judged) == (1.0, 0.125)


def test_the_tolerance_is_the_largest_difference_that_agrees():
    assert difference(HIDDEN_STATES, "layer 0", "short", 2e-5, 0.0).agrees
    assert not difference(HIDDEN_STATES, "layer 0", "short", 2.1e-5, 0.0).agrees
    assert difference(LOSS, "masked_lm", "short", 1e-4, 0.0).agrees
    assert not difference(LOSS, "masked_lm", "short", 1.1e-4, 0.0).agrees


def test_what_is_not_a_number_never_agrees():
    for found, expected in ((math.nan, 0.0), (0.0, math.nan), (math.nan, math.nan)):
        assert not difference(LOSS, "masked_lm", "short", found, expected).agrees
    assert not difference(LOSS, "masked_lm", "short", math.inf, 0.0).agrees


def test_weight_and_bias_of_one_part_share_their_scale():
    scales = gradient_scales(
        {
            "layer.key.weight": np.array([[0.5, -2.0]]),
            "layer.key.bias": np.array([1e-9]),
            "layer.value.weight": np.array([[3.0]]),
            "layer.value.bias": np.array([-4.0]),
            "words.weight": np.array([[0.25]]),
        }
    )
    assert scales == {
        "layer.key.weight": 2.0,
        "layer.key.bias": 2.0,
        "layer.value.weight": 4.0,
        "layer.value.bias": 4.0,
        "words.weight": 0.25,
    }


def test_no_scale_is_below_a_millionth_of_the_largest_gradient():
    gradients = {"a.weight": np.array([8.0]), "b.weight": np.array([0.0])}
    assert gradient_scales(gradients)["b.weight"] == 8e-6


def test_gradients_that_are_zero_on_both_sides_agree():
    zero = np.zeros(3)
    scale = gradient_scales({"a.weight": zero})["a.weight"]
    assert difference(GRADIENT, "a.weight", "short", zero, zero, scale).agrees
    assert not difference(GRADIENT, "a.weight", "short", zero + 1e-20, zero, scale).agrees
