"""Causes of differences of literal arrays; test_compare.py has causes in real models."""

import dataclasses

import numpy as np
import pytest

from bert_jax.models.config import EncoderConfig
from bert_jax.parity.causes import (
    Case,
    causes_in_config,
    causes_in_rounding,
    causes_in_tensors,
)
from bert_jax.parity.inputs import ParityInput
from bert_jax.parity.report import GRADIENT, HIDDEN_STATES, Difference

SQUARE = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
BIAS = np.array([5.0, 6.0], np.float32)
DECODER = "cls.predictions.decoder.weight"


NAMES = [f"layer.{number}.weight" for number in range(5)]


@pytest.mark.parametrize(
    ("model", "reference", "expected"),
    [
        ({"query.weight": SQUARE, "a": BIAS}, {"query.weight": SQUARE, "a": BIAS}, []),
        (
            {"query.weight": SQUARE.T, "a": BIAS},
            {"query.weight": SQUARE, "a": BIAS},
            ["transposed kernel: query.weight"],
        ),
        (
            dict.fromkeys(NAMES, SQUARE.T),
            dict.fromkeys(NAMES, SQUARE),
            ["transposed kernel: layer.0.weight, layer.1.weight, layer.2.weight and 2 more"],
        ),
        (
            {"a.bias": BIAS + 0.5, "b.bias": BIAS - 2, "c.bias": BIAS},
            dict.fromkeys(("a.bias", "b.bias", "c.bias"), BIAS),
            ["other weights: a.bias, b.bias; the largest distance is 2.0e+00, in b.bias"],
        ),
    ],
)
def test_differences_of_weights(model, reference, expected):
    assert causes_in_tensors(model, reference, "float32", DECODER) == expected


@pytest.mark.parametrize(
    ("model", "reference", "expected"),
    [
        ({DECODER: SQUARE}, {}, "the reference scores words with its word embeddings, the model"),
        ({}, {DECODER: SQUARE}, "the model scores words with its word embeddings, the reference"),
    ],
)
def test_a_decoder_on_one_side_alone_is_a_missing_tie(model, reference, expected):
    (cause,) = causes_in_tensors(model, reference, "float32", DECODER)
    assert cause.startswith(f"missing tie: {expected}")
    assert DECODER in cause


def test_the_rounding_of_a_half_precision_file_is_named():
    reference = {"query.bias": np.array([1.0001, 0.1], np.float32), "key.bias": BIAS}
    model = {
        "query.bias": reference["query.bias"].astype(np.float16).astype(np.float32),
        "key.bias": BIAS,
    }
    assert causes_in_tensors(model, reference, "float16", DECODER) == [
        "precision: the model's file holds float16; rounded are query.bias"
    ]
    assert causes_in_tensors(model, reference, "float32", DECODER)[0].startswith(
        "other weights: query.bias"
    )


# --- Experiments with the config ---------------------------------------------------------------

CONFIG = EncoderConfig(
    vocab_size=9, hidden_size=6, num_hidden_layers=1, num_attention_heads=3, intermediate_size=6
)
INPUT = ParityInput("short", "", {"attention_mask": np.array([[1, 1, 0]])}, {})


def states_of(config: EncoderConfig, batch: ParityInput) -> np.ndarray:
    """[L + 1, B · K, T, D] as a model has them: the epsilon is in all, all else from layer 0 on."""
    del batch
    acts = {"gelu": 0.0, "gelu_new": 0.5, "gelu_pytorch_tanh": 0.5, "relu": 1.0}
    embeddings = 100 * config.layer_norm_eps
    layer = embeddings + acts.get(config.hidden_act, 2.0) + 10 * config.num_attention_heads
    return np.broadcast_to(np.array([embeddings, layer])[:, None, None, None], (2, 1, 3, 6))


def causes(**changes: object) -> list[str]:
    """The causes when the reference computes with another config, as one of two inputs shows."""
    reference = dataclasses.replace(CONFIG, **changes)
    cases = [Case(INPUT, states_of(config, INPUT)) for config in (CONFIG, reference)]
    return causes_in_config(CONFIG, dataclasses.asdict(reference), states_of, cases)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"layer_norm_eps": 1e-5}, ["epsilon: … says 1e-12, … with 1e-05 (layer_norm_eps)"]),
        # No usual one: the reference's config names it.
        ({"layer_norm_eps": 3e-4}, ["epsilon: … says 1e-12, … with 0.0003 (layer_norm_eps)"]),
        ({"hidden_act": "relu"}, ["activation: … says gelu, … with relu (hidden_act)"]),
        ({"num_attention_heads": 2}, ["attention heads: … says 3, … with 2 (num_attention_heads)"]),
        (
            {"layer_norm_eps": 1e-5, "hidden_act": "relu"},
            [
                "epsilon: … says 1e-12, … with 1e-05 (layer_norm_eps)",
                "activation: … says gelu, … with relu (hidden_act)",
            ],
        ),
    ],
)
def test_what_makes_the_difference_vanish_is_the_cause(changes, expected):
    assert causes(**changes) == [
        line.replace("… says", "config.json of the model says").replace(
            "… with", "the reference computes with"
        )
        for line in expected
    ]


def test_the_activation_of_the_reference():
    # Of two names for one function, the reference's is reported.
    assert "gelu_pytorch_tanh" in causes(hidden_act="gelu_pytorch_tanh")[0]
    # The reference computes something else than its config says.
    case = Case(INPUT, states_of(dataclasses.replace(CONFIG, hidden_act="relu"), INPUT))
    (cause,) = causes_in_config(CONFIG, dataclasses.asdict(CONFIG), states_of, [case])
    assert cause.startswith("activation: config.json of the model says gelu, ")
    assert "relu" in cause


@pytest.mark.parametrize(
    "fields", [{"hidden_act": "relu"}, {"hidden_act": "mish", "num_attention_heads": 4}]
)
def test_a_config_alone_is_no_cause(fields):
    """The reference computes what neither config says, or what bert_jax does not support."""
    case = Case(INPUT, states_of(CONFIG, INPUT) + 0.3)
    assert causes_in_config(CONFIG, dataclasses.asdict(CONFIG) | fields, states_of, [case]) == []


def test_padding_is_not_compared():
    hidden_states = states_of(CONFIG, INPUT).copy()
    hidden_states[:, :, 2] += 5
    case = Case(INPUT, hidden_states)
    assert causes_in_config(CONFIG, dataclasses.asdict(CONFIG), states_of, [case]) == []


# --- Rounding ----------------------------------------------------------------------------------


def entry(name: str, error: float, quantity: str = GRADIENT) -> Difference:
    return Difference(quantity, name, "short", error, error, 1, error)


def test_rounding_explains_what_the_reference_rounds_as_much():
    result = causes_in_rounding(
        [entry("a", 5e-4), entry("b", 9e-5), entry("c", 8e-4)],
        [entry("a", 6e-5), entry("b", 0.0), entry("c", 7e-4)],
    )
    assert result == [
        "rounding: c (short) is 8.0e-04 from the reference, and the reference in float32 is "
        "7.0e-04 from itself in float64; these weights amplify it"
    ]


@pytest.mark.parametrize(
    ("difference", "rounding"),
    [
        (entry("b", float("nan")), entry("b", 7e-4)),
        (entry("b", 8e-3), entry("b", 7e-4)),  # more than ten times as much
        (entry("b", 5e-4, HIDDEN_STATES), entry("b", 1e-2)),  # of another quantity
    ],
)
def test_rounding_does_not_explain_everything(difference, rounding):
    assert causes_in_rounding([entry("a", 5e-4), difference], [entry("a", 6e-5), rounding]) == []
