"""The table and the dict of a comparison."""

import json
import math

import numpy as np
import pytest

from bert_jax.parity.report import (
    GRADIENT,
    HIDDEN_STATES,
    LOGITS,
    LOSS,
    Difference,
    ParityReport,
    difference,
    gradient_scales,
)

LAYER = "bert.encoder.layer"


def entry(quantity, name, input_name, maximum, mean, count=1, error=None) -> Difference:
    return Difference(
        quantity, name, input_name, maximum, mean, count, maximum if error is None else error
    )


def report(*more: Difference, causes=()) -> ParityReport:
    differences = (
        entry(HIDDEN_STATES, "embeddings", "short", 1e-7, 1e-8),
        entry(HIDDEN_STATES, "layer 0", "short", 3e-7, 2e-8),
        entry(LOGITS, "logits", "short", 4e-7, 3e-8),
        entry(LOSS, "masked_lm", "short", 5e-7, 5e-7),
        entry(GRADIENT, "bert.embeddings.word_embeddings.weight", "short", 6e-9, 1e-9, 10, 1e-6),
        entry(GRADIENT, f"{LAYER}.0.output.dense.weight", "short", 4e-9, 2e-9, 30, 3e-6),
        entry(GRADIENT, f"{LAYER}.0.output.dense.bias", "short", 5e-9, 4e-9, 10, 2e-6),
        entry(GRADIENT, "cls.predictions.transform.dense.weight", "short", 7e-9, 1e-9, 10, 1e-7),
        entry(HIDDEN_STATES, "embeddings", "full", 2e-7, 1e-8),
        entry(HIDDEN_STATES, "layer 0", "full", 2e-7, 3e-8),
        entry(LOGITS, "logits", "full", 1e-7, 3e-8),
        entry(LOSS, "masked_lm", "full", 0.0, 0.0),
        entry(GRADIENT, "bert.embeddings.word_embeddings.weight", "full", 6e-9, 1e-9, 10, 2e-6),
        entry(GRADIENT, f"{LAYER}.0.output.dense.weight", "full", 4e-9, 2e-9, 30, 3e-7),
        entry(GRADIENT, f"{LAYER}.0.output.dense.bias", "full", 5e-9, 4e-9, 10, 2e-7),
        entry(GRADIENT, "cls.predictions.transform.dense.weight", "full", 7e-9, 1e-9, 10, 1e-7),
    )
    return ParityReport(
        model="ours",
        reference="theirs",
        architecture="BertForMaskedLM",
        versions="transformers 5, torch 2",
        inputs={"short": "batch 1, 12 tokens", "full": "batch 1, 512 tokens, two segments"},
        differences=differences + more,
        equal_tensors=(42, 42),
        causes=causes,
    )


# fmt: off
TABLE = """\
model       ours (BertForMaskedLM, float32)
reference   theirs (transformers 5, torch 2)
input       short: batch 1, 12 tokens
input       full: batch 1, 512 tokens, two segments
parameters  42 of 42 tensors equal to the bit

                                 short                full
absolute difference              max      mean       max      mean     worst    limit
hidden states
  embeddings                 1.0e-07   1.0e-08   2.0e-07   1.0e-08   2.0e-07    2e-05  ok
  layer 0                    3.0e-07   2.0e-08   2.0e-07   3.0e-08   3.0e-07    2e-05  ok
logits
  logits                     4.0e-07   3.0e-08   1.0e-07   3.0e-08   4.0e-07    1e-04  ok
loss
  masked_lm                  5.0e-07   5.0e-07   0.0e+00   0.0e+00   5.0e-07    1e-04  ok
gradients: their worst is relative to the largest value of the reference's
  embeddings                 6.0e-09   1.0e-09   6.0e-09   1.0e-09   2.0e-06    1e-04  ok      word_embeddings.weight
  layer 0                    5.0e-09   2.5e-09   5.0e-09   2.5e-09   3.0e-06    1e-04  ok      output.dense.weight
  cls.predictions            7.0e-09   1.0e-09   7.0e-09   1.0e-09   1.0e-07    1e-04  ok      transform.dense.weight

agrees: 16 differences, all of them rounding"""  # noqa: E501
# fmt: on


def test_the_table_has_a_line_for_each_quantity_and_layer():
    assert report().as_table() == TABLE
    assert report().agrees


def test_a_difference_is_marked_and_explained():
    wrong = report(
        entry(HIDDEN_STATES, "layer 1", "short", 2e-5, 1e-6),
        entry(HIDDEN_STATES, "layer 1", "full", 3e-5, 1e-6),
        entry(GRADIENT, f"{LAYER}.0.output.dense.bias", "full", 1.0, 0.5, 10, 2e-4),
        causes=("activation: this is why",),
    )
    assert not wrong.agrees
    lines = wrong.as_table().splitlines()
    (marked,) = [line for line in lines if line.startswith("  layer 1 ")]
    assert marked.endswith("3.0e-05    2e-05  DIFFERS")
    (marked,) = [line for line in lines if line.endswith("DIFFERS output.dense.bias")]
    assert marked.startswith("  layer 0 ")
    assert lines[-2:] == [
        "DIFFERS: 2 of 19, first in hidden states, layer 1 (full)",
        "likely cause: activation: this is why",
    ]


def test_nan_is_the_worst_and_an_unknown_cause_is_reported():
    wrong = report(
        entry(GRADIENT, f"{LAYER}.0.output.dense.bias", "full", math.nan, math.nan, 10, math.nan)
    )
    (line,) = [line for line in wrong.as_table().splitlines() if "DIFFERS output" in line]
    assert line.startswith("  layer 0 ")
    assert line.count("nan") == 3
    assert not wrong.agrees
    assert "likely cause: unknown: the weights are equal" in wrong.as_table().splitlines()[-1]


def test_the_dict_has_every_number_and_is_json():
    result = report(entry(LOSS, "x", "full", math.inf, math.nan), causes=("why",)).as_dict()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["agrees"] is False
    assert result["causes"] == ["why"]
    assert (result["tensors"], result["equal_tensors"]) == (42, 42)
    assert result["tolerances"] == {
        "hidden states": 2e-5,
        "hidden states of the decoder": 2e-5,
        "logits": 1e-4,
        "loss": 1e-4,
        "gradient": 1e-4,
    }
    assert len(result["differences"]) == 17
    assert result["differences"][5] == {
        "quantity": "gradient",
        "name": "bert.encoder.layer.0.output.dense.weight",
        "input": "short",
        "max": 4e-9,
        "mean": 2e-9,
        "error": 3e-6,
        "agrees": True,
    }
    assert result["differences"][-1]["max"] == "inf"
    assert result["differences"][-1]["mean"] == "nan"


def test_a_difference_is_the_largest_and_the_mean_absolute_one():
    result = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    expected = np.array([[1.0, 2.5], [3.0, 3.0]], np.float32)
    entry = difference(GRADIENT, "a.weight", "short", result, expected, scale=8.0)
    assert (entry.maximum, entry.mean, entry.count, entry.error) == (1.0, 0.375, 4, 0.125)


@pytest.mark.parametrize(
    ("quantity", "result", "expected", "agrees"),
    [
        (HIDDEN_STATES, 2e-5, 0.0, True),
        (HIDDEN_STATES, 2.1e-5, 0.0, False),
        (LOSS, 1e-4, 0.0, True),
        (LOSS, 1.1e-4, 0.0, False),
        (LOSS, math.nan, 0.0, False),
        (LOSS, 0.0, math.nan, False),
        (LOSS, math.nan, math.nan, False),
        (LOSS, math.inf, 0.0, False),
    ],
)
def test_the_tolerance_is_the_largest_difference_that_agrees(quantity, result, expected, agrees):
    assert difference(quantity, "layer 0", "short", result, expected).agrees == agrees


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


def test_the_smallest_scales():
    gradients = {"a.weight": np.array([8.0]), "b.weight": np.array([0.0])}
    assert gradient_scales(gradients)["b.weight"] == 8e-6  # a millionth of the largest
    zero = np.zeros(3)
    scale = gradient_scales({"a.weight": zero})["a.weight"]
    assert difference(GRADIENT, "a.weight", "short", zero, zero, scale).agrees
    assert not difference(GRADIENT, "a.weight", "short", zero + 1e-20, zero, scale).agrees
