"""Pooling of vectors that a person can add up; several texts through one encoder."""

import jax
import numpy as np
import pytest

from bert_jax.models.activations import PYTORCH_ACTIVATIONS
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.layers import l2_normalize
from bert_jax.models.sentence_pairs import SentencePairs, pair_features
from bert_jax.models.vectors import Dense, LayerNorm, Normalize
from tests.random_params import random_params

HIDDEN = np.float32(
    [
        [[1.0, -4.0], [3.0, -2.0], [5.0, -9.0], [99.0, 99.0]],
        [[2.0, 0.0], [99.0, 99.0], [99.0, 99.0], [99.0, 99.0]],
        [[7.0, 7.0], [7.0, 7.0], [7.0, 7.0], [7.0, 7.0]],
    ]
)
MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], bool)


# The first row has three tokens of four, the second one.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cls", [[1, -4], [2, 0]]),
        ("max", [[5, -2], [2, 0]]),
        ("mean", [[3, -5], [2, 0]]),
        ("mean_sqrt_len_tokens", [[9 / 3**0.5, -15 / 3**0.5], [2, 0]]),
        ("weightedmean", [[22 / 6, -35 / 6], [2, 0]]),
        ("lasttoken", [[5, -9], [2, 0]]),
    ],
)
def test_poolings_by_hand(name, expected):
    computed = np.asarray(jax.jit(TextPooling((name,)).apply)({}, HIDDEN, MASK))
    np.testing.assert_allclose(computed[:2], expected, rtol=1e-6)
    assert np.isfinite(computed[2]).all()  # a row without tokens
    assert name == "cls" or name == "max" or (computed[2] == 0).all()


# Without the first token, a prompt, in the pooling; the positions still count from it.
@pytest.mark.parametrize(
    ("name", "expected"),
    [("cls", [3, -2]), ("mean", [4, -5.5]), ("weightedmean", [21 / 5, -31 / 5])],
)
def test_a_prompt_that_does_not_count(name, expected):
    pool = TextPooling((name,), prompt_length=1)
    np.testing.assert_allclose(pool.apply({}, HIDDEN, MASK)[0], expected, rtol=1e-6)


def test_only_the_first_values_of_a_vector_are_kept():
    pool = TextPooling(("mean",), truncate_dim=1)
    np.testing.assert_allclose(pool.apply({}, HIDDEN, MASK), [[3], [2], [0]], rtol=1e-6)


def test_modules_after_several_poolings_by_hand():
    dense = Dense(4, 2, activation_function="torch.nn.modules.activation.ReLU", use_residual=True)
    pool = TextPooling(("mean", "cls"), (dense, Normalize(), LayerNorm(2)))
    params = {
        # [3, -5, 1, -4] → [3 - 4, 5 + 1] → [0, 6] and the first two of it
        "0_dense": {
            "kernel": np.float32([[1, 0], [0, -1], [0, 0], [1, 0]]),
            "bias": np.float32([0, 1]),
        },
        "0_residual": {"kernel": np.float32([[1, 0], [0, 1], [0, 0], [0, 0]])},
        "2_norm": {"scale": np.float32([2, 2]), "bias": np.float32([0, 1])},
    }
    computed = pool.apply({"params": params}, HIDDEN, MASK)[0]
    # [3, 1] / √10 has the mean 2 / √10 and the deviation 1 / √10.
    deviation = (0.1 + 1e-5) ** 0.5
    expected = [2 * 0.1**0.5 / deviation, 1 - 2 * 0.1**0.5 / deviation]
    np.testing.assert_allclose(computed, expected, rtol=1e-6)


@pytest.mark.parametrize("name", PYTORCH_ACTIVATIONS)
def test_activations_have_the_parameters_of_pytorch(name):
    values = {  # torch 2.13 for -2 and 0.5
        "Identity": (-2, 0.5), "Tanh": (-0.964028, 0.462117), "ReLU": (0, 0.5),
        "ReLU6": (0, 0.5), "LeakyReLU": (-0.02, 0.5), "ELU": (-0.864665, 0.5),
        "CELU": (-0.864665, 0.5), "SELU": (-1.520167, 0.525351), "GELU": (-0.045500, 0.345731),
        "SiLU": (-0.238406, 0.311230), "Mish": (-0.252501, 0.375245),
        "Sigmoid": (0.119203, 0.622459), "LogSigmoid": (-2.126928, -0.474077),
        "Softplus": (0.126928, 0.974077), "Softsign": (-0.666667, 0.333333),
        "Tanhshrink": (-1.035972, 0.037883), "Hardtanh": (-1, 0.5),
        "Hardsigmoid": (0.166667, 0.583333), "Hardswish": (-0.333333, 0.291667),
    }  # fmt: skip
    computed = PYTORCH_ACTIVATIONS[name](np.float32([-2, 0.5]))
    np.testing.assert_allclose(computed, values[name], atol=2e-6)


def test_unit_length():
    computed = jax.jit(l2_normalize)(np.float32([[3.0, 4.0], [0.0, -2.0], [0.0, 0.0]]))
    np.testing.assert_allclose(computed, [[0.6, 0.8], [0.0, -1.0], [0.0, 0.0]], rtol=1e-6)


def test_features_by_hand():
    computed = jax.jit(pair_features)(np.float32([[1.0, 5.0]]), np.float32([[3.0, 2.0]]))
    assert computed.tolist() == [[1, 5, 3, 2, 2, 3]]


def test_each_text_of_an_example_has_its_own_vector(tiny_config):
    """Three texts; the classifier takes the first and the last."""
    module = SentencePairs(tiny_config, Execution(), TextPooling(), labels=3)
    params = random_params(module, scale=1.0, all_differ=True)
    assert params["classifier"]["kernel"].shape == (3 * 16, 3)
    assert set(params["bert"]) == {"embeddings", "encoder"}
    ids = np.array([[[2, 10, 3, 0], [2, 6, 18, 3], [2, 8, 9, 3]], [[0] * 4] * 3])
    mask = np.array([[[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]], [[0] * 4] * 3])
    apply = jax.jit(lambda ids: module.apply({"params": params}, ids, None, mask))
    output = jax.tree.map(np.asarray, apply(ids))
    assert output.vectors.shape == (2, 3, 16)
    assert output.logits.shape == (2, 3)
    assert (output.vectors[1] == 0).all()  # texts without tokens
    ids[0, 1, 1], ids[0, 0, 3] = 7, 9  # a token of the second text, padding of the first
    changed = jax.tree.map(np.asarray, apply(ids))
    assert (changed.vectors[0] != output.vectors[0]).any(axis=1).tolist() == [False, True, False]
    assert (changed.logits == output.logits).all()
    ids[0, 2, 1] = 7
    assert (np.asarray(apply(ids).logits[0]) != output.logits[0]).all()
