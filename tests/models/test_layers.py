"""The small parts, where Flax's defaults are not BERT's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.attention import AttentionContext, attention_weights
from bert_jax.models.config import EncoderConfig, Execution
from bert_jax.models.heads import gather_positions
from bert_jax.models.layers import dense, layer_norm
from bert_jax.models.segments import SegmentIds, Tokens


def normalised(x, dtype="float32", **fields):
    norm = layer_norm(EncoderConfig(hidden_size=x.shape[-1], num_attention_heads=1, **fields),
                      Execution(dtype=dtype), "norm")  # fmt: skip
    return norm.apply(norm.init(jax.random.key(0), x), x)


def test_layer_norm_has_the_small_epsilon():
    # Variance 1e-8: with Flax's 1e-6 the result would be 0.1, with 1e-12 it is 1.
    x = jnp.array([[-1e-4, 1e-4]])
    np.testing.assert_allclose(normalised(x), [[-1.0, 1.0]], rtol=1e-3)
    np.testing.assert_allclose(normalised(x, layer_norm_eps=1e-6), [[-0.0995, 0.0995]], rtol=1e-2)


def test_layer_norm_subtracts_the_mean_before_it_squares():
    # E[x²] - E[x]² of numbers near 10,000 loses all digits in float32.
    x = jnp.array([[10_000.0, 10_002.0]])
    np.testing.assert_allclose(normalised(x), [[-1.0, 1.0]], rtol=1e-3)


def test_layer_norm_computes_in_float32_whatever_the_activations_are():
    x = jax.random.normal(jax.random.key(0), (4, 256)) + 3
    exact = normalised(x.astype(jnp.bfloat16).astype(jnp.float32))
    rounded = normalised(x.astype(jnp.bfloat16), dtype="bfloat16")
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_array_equal(rounded, exact.astype(jnp.bfloat16))


def test_parameters_are_float32_under_bfloat16():
    module = dense(EncoderConfig(), Execution(dtype="bfloat16"), 3, "dense")
    variables = module.init(jax.random.key(0), jnp.ones((2, 5)))
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    assert module.apply(variables, jnp.ones((2, 5))).dtype == jnp.bfloat16


def pairs(of_queries, of_keys):
    """Of any number of heads."""
    return AttentionContext.of(Tokens.of(SegmentIds(jnp.array(of_queries), jnp.array(of_keys))), 1)


def test_attention_weights_by_hand():
    # One head of width 4: scores q · k / 2, so softmax(0, ln 3) = (1/4, 3/4).
    query = jnp.zeros((1, 1, 1, 4)).at[..., 0].set(2.0)
    key = jnp.zeros((1, 1, 3, 4)).at[..., 1, 0].set(jnp.log(3.0)).at[..., 2, 0].set(100.0)
    weights = attention_weights(query, key, pairs([[1]], [[1, 1, 0]]))
    assert weights.shape == (1, 1, 1, 3)
    np.testing.assert_allclose(weights[0, 0, 0], [0.25, 0.75, 0.0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_hidden_keys_have_no_weight_and_a_hidden_row_is_uniform(dtype):
    query, key = (
        jnp.asarray(x, dtype) for x in np.random.default_rng(0).normal(size=(2, 2, 3, 5, 4))
    )
    seen = pairs([[1], [1]], [[1, 0, 1, 0, 0], [0] * 5])
    weights = jax.jit(attention_weights)(query, key, seen)  # BNTS
    assert weights.dtype == jnp.float32
    weights = np.asarray(weights)
    assert not weights[0][:, :, [1, 3, 4]].any()
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(weights[1], 0.2, rtol=1e-6)


def test_a_query_sees_the_keys_of_its_own_segment():
    query, key = np.random.default_rng(0).normal(size=(2, 1, 3, 5, 4))
    numbers = [[1, 1, 2, 2, 0]]
    weights = np.asarray(attention_weights(query, key, pairs(numbers, numbers)))[0]  # NTS
    assert (weights[0] > 0).astype(int).tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    alone = attention_weights(query[:, :, 2:4], key[:, :, 2:4], pairs([[1, 1]], [[1, 1]]))[0]
    np.testing.assert_allclose(weights[:, 2:4, 2:4], alone, rtol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)


def test_gathered_positions_by_hand():
    hidden = jnp.arange(12.0).reshape(2, 3, 2)
    positions = jnp.array([[2, 0], [1, 1]])
    assert gather_positions(hidden, positions).tolist() == [
        [[4.0, 5.0], [0.0, 1.0]],
        [[8.0, 9.0], [8.0, 9.0]],
    ]


def test_a_dense_layer_to_heads_and_back():
    config, execution = EncoderConfig(), Execution()
    x = jax.random.normal(jax.random.key(0), (2, 7))
    variables = dense(config, execution, (3, 4), "split").init(jax.random.key(1), x)
    kernel, bias = variables["params"]["kernel"], variables["params"]["bias"]
    assert (kernel.shape, bias.shape) == ((7, 3, 4), (3, 4))
    split = dense(config, execution, (3, 4), "split").apply(variables, x)
    np.testing.assert_allclose(split, np.einsum("bd,dnh->bnh", x, kernel), rtol=1e-5, atol=1e-6)
    back = dense(config, execution, 7, "join", axes=2)
    shapes = jax.eval_shape(back.init, jax.random.key(2), split)
    assert shapes["params"]["kernel"].shape == (3, 4, 7)
