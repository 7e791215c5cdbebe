"""Sparse vectors: weights by hand, gradients and memory of the computation by parts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.execution import Execution
from bert_jax.models.heads import sparse_vectors
from bert_jax.models.heads.masked_lm import MaskedLMModel
from bert_jax.models.heads.sparse_vectors import SparseEncoder, pooled_weights
from tests.random_params import random_params, small_config

# exp(x) - 1, so that log(1 + it) is x; the second row has one token.
LOGITS = np.expm1(
    np.float32([[[1, -9, 2], [3, -1, 0], [0, -2, 1]], [[0, 5, -1], [9] * 3, [9] * 3]])
)
MASK = np.array([[1, 1, 1], [1, 0, 0]], bool)


@pytest.mark.parametrize(
    ("pooling_strategy", "activation_function", "expected"),
    [
        ("max", "relu", [[3, 0, 2], [0, 5, 0]]),
        ("sum", "relu", [[4, 0, 3], [0, 5, 0]]),
        ("max", "log1p_relu", np.log1p([[3, 0, 2], [0, 5, 0]])),
        ("sum", "log1p_relu", [[np.log(2 * 4), 0, np.log(3 * 2)], [0, np.log(6), 0]]),
    ],
)
def test_weights_by_hand(pooling_strategy, activation_function, expected):
    weights = pooled_weights(
        LOGITS, np.eye(3), np.zeros(3), MASK, pooling_strategy, activation_function
    )
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def all_at_once(vectors, table, bias, mask, pooling_strategy, activation_function):
    """The definition, which has [B, T, V] logits."""
    logits = jnp.where(mask[:, :, None], vectors @ table.T + bias, 0)
    weights = sparse_vectors.ACTIVATIONS[activation_function](logits)
    return weights.max(axis=1) if pooling_strategy == "max" else weights.sum(axis=1)


@pytest.mark.parametrize("activation_function", sparse_vectors.ACTIVATIONS)
@pytest.mark.parametrize("pooling_strategy", sparse_vectors.POOLING_STRATEGIES)
def test_parts_have_the_weights_and_gradients_of_the_whole(
    monkeypatch, pooling_strategy, activation_function
):
    monkeypatch.setattr(sparse_vectors, "WORDS_AT_ONCE", 4)
    draw = np.random.default_rng(0).normal
    operands = [np.float32(draw(size=shape)) for shape in ((3, 5, 4), (10, 4), (10,))]
    mask = np.arange(5) < np.array([[5], [2], [0]])
    direction = draw(size=(3, 10))

    def loss(function, *operands):
        weights = function(*operands, mask, pooling_strategy, activation_function)
        return (weights * direction).sum(), weights

    (computed, expected) = (
        jax.jit(jax.grad(functools.partial(loss, function), argnums=(0, 1, 2), has_aux=True))(
            *operands
        )
        for function in (pooled_weights, all_at_once)
    )
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, atol=1e-5), computed, expected
    )
    assert (np.asarray(computed[1][2]) == 0).all()  # the row without tokens


@pytest.mark.parametrize(("pooling_strategy", "products"), [("max", 3), ("sum", 4)])
def test_logits_of_all_tokens_and_words_are_never_in_memory(pooling_strategy, products):
    rows, length, words = 8, 128, 30_522
    shapes = ((rows, length, 16), (words, 16), (words,))
    operands = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    mask = np.ones((rows, length), bool)

    def loss(*operands):
        return pooled_weights(*operands, mask, pooling_strategy).sum()

    compiled = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2))).lower(*operands).compile()
    temporary = compiled.memory_analysis().temp_size_in_bytes
    assert temporary < rows * length * words  # a quarter of the bytes of all logits
    # The logits, and the gradients of both factors; the maximum needs no logits a second time.
    assert compiled.as_text().count(" dot(") == products


@pytest.mark.slow
def test_a_model_pools_the_logits_of_the_masked_language_model():
    config = small_config(num_hidden_layers=1)
    execution = Execution(pad_vocab_to_multiple_of=32)
    params = random_params(MaskedLMModel(config, execution), scale=0.3, all_differ=True)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (2, 3, 6)).astype(np.int32)
    mask = np.int32([[[1] * 6, [1] * 2 + [0] * 4, [0] * 6]] * 2)
    inputs = {"input_ids": ids, "attention_mask": mask}
    module = SparseEncoder(config, execution)
    weights = module.apply({"params": params}, **inputs, method="encode")
    logits = MaskedLMModel(config, execution).apply({"params": params}, **inputs)
    logits = logits[..., : config.vocab_size]
    expected = np.log1p(np.maximum(np.where(mask[..., None], logits, 0), 0)).max(axis=2)
    assert weights.shape == (2, 3, config.vocab_size)
    assert (expected > 0).any()
    np.testing.assert_allclose(weights, expected, atol=1e-5)
