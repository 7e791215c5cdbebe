"""Attention and its gradients against what JAX makes of the definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.attention import AttentionContext, attention
from bert_jax.models.dropout import Numbers, dropped
from bert_jax.models.segments import SegmentIds, Tokens

KEY = jnp.array([7, 11], jnp.uint32)
# The last row of the second example is padding, which sees nobody and is seen by nobody.
SEGMENTS = SegmentIds(
    jnp.array([[1, 1, 2, 2, 2], [1, 1, 1, 1, 3]]), jnp.array([[1, 1, 2, 2, 0], [1, 1, 1, 1, 0]])
)

# Of each example, head and query; and of the keys: 2 examples, 3 heads, 5 tokens.
_TOKENS = 5 * jnp.arange(2)[:, None, None] + jnp.arange(5)  # B1T
NUMBERS = Numbers.of(3 * _TOKENS + jnp.arange(3)[:, None], 5)


def definition(rate, query, key, value):
    visible = SEGMENTS.query[:, None, :, None] == SEGMENTS.key[:, None, None, :]  # B1TS
    scores = jnp.einsum("BNTH,BNSH->BNTS", query, key) / jnp.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(visible, scores, jnp.finfo(jnp.float32).min))
    return jnp.einsum("BNTS,BNSH->BNTH", dropped(rate, weights, KEY, NUMBERS), value)


def operands(dtype):
    arrays = np.random.default_rng(3).normal(size=(4, 2, 3, 5, 8))
    return [jnp.asarray(array, dtype) for array in arrays]


def loss(function, rate, query, key, value, cotangent):
    context = function(rate, query, key, value)
    return (context * cotangent).sum(), context


def ours(rate, query, key, value):
    return attention(rate, query, key, value, AttentionContext.of(Tokens.of(SEGMENTS), 3), KEY)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_results_and_gradients_are_those_of_the_definition(rate, dtype, tolerance):
    given = operands(dtype)
    wide = [array.astype(jnp.float32) for array in given]
    found, expected = (
        jax.jit(jax.value_and_grad(loss, argnums=(2, 3, 4), has_aux=True), static_argnums=(0, 1))(
            function, rate, *arrays
        )
        for function, arrays in ((ours, given), (definition, wide))
    )
    (_, context), gradients = found
    (_, wanted), wanted_gradients = expected
    for one, other in zip((context, *gradients), (wanted, *wanted_gradients), strict=True):
        assert one.dtype == dtype
        scale = float(abs(other).max())
        np.testing.assert_allclose(one.astype(jnp.float32), other, atol=tolerance * scale)


def test_padding_gets_no_gradient():
    gradients = jax.grad(loss, argnums=(2, 3, 4), has_aux=True)(ours, 0.0, *operands("float32"))[0]
    of_query, of_key, of_value = gradients
    assert not of_query[1, :, 4].any()
    assert not of_key[0, :, 4].any()
    assert of_value[1, :, 4].any()  # of the row that sees nobody, all are equal
    assert of_query[1, :, 3].any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_long_rows_give_the_same_head_by_head(dtype, rate):
    """Where no gradient is wanted, a loop over the heads computes the same; it is there."""
    length = 384
    drawn = np.random.default_rng(3).normal(size=(3, 2, 3, length, 64))
    query, key, value = (jnp.asarray(array, dtype) for array in drawn)
    ids = jnp.arange(length) // jnp.array([[200], [400]])  # two texts in the first row
    pairs = AttentionContext.of(Tokens.of(SegmentIds(ids, ids)), 3)
    together = jax.jit(lambda *operands: jax.vjp(attend, *operands)[0])

    def attend(*operands):
        return attention(rate, *operands, pairs, KEY)

    loops = [
        "while" in jax.jit(function).lower(query, key, value).as_text()
        for function in (attend, together)
    ]
    assert loops == [True, False]
    np.testing.assert_array_equal(jax.jit(attend)(query, key, value), together(query, key, value))
