"""Attention on a CPU in blocks of heads, whose scores and weights stay in the cache.

The scores of all rows and heads would pass through memory several times: at 256 tokens they have
more bytes than all other activations of a layer. Here a loop computes a few heads at a time, in
both passes. As in flash attention (Dao et al., 2022, https://arxiv.org/abs/2205.14135), the forward
pass divides by the sum of the softmax after the product with the values, and the backward pass
computes the weights again, from the maximum and the sum of each query's scores.

Everything is float32, for activations of any dtype: a CPU's loop would convert a whole bfloat16
array to read a slice of it.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.dropout import dropped
from bert_jax.models.kernels import MASK_VALUE, AttentionCall, Kernel
from bert_jax.models.kernels.matmul import matmul, matmul_nt, matmul_tn
from bert_jax.models.kernels.xla import scale
from bert_jax.models.packed_rows import AttentionContext
from bert_jax.sharding.runtime import multiplies_bfloat16

# The most bytes that the scores of a block have, if that is not less than one head.
_BLOCK_BYTES = 4 * 2**20


class _Softmax(NamedTuple):
    """What the weights are computed from, apart from the scores; both float32 [..., T, 1].

    Attributes:
        maximum: maximum of the scores of each query.
        total: sum of the exponentials of the scores minus the maximum.
    """

    maximum: jax.Array
    total: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> jax.Array:
    """Computes `models.attention.attention`."""
    return _forward(query, key, value, context, rate, dropout_key)[0]


def _forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> tuple[jax.Array, Any]:
    """The output, and the residuals that `_backward` reads."""

    def attend(
        query: jax.Array, key: jax.Array, value: jax.Array, context: AttentionContext
    ) -> tuple[jax.Array, _Softmax]:
        scores = _scores(query, key, context)
        maximum = scores.max(axis=-1, keepdims=True)
        exponentials = jnp.exp(scores - maximum)
        total = exponentials.sum(axis=-1, keepdims=True)
        kept = dropped(rate, exponentials, dropout_key, context.dropout_indices)
        return matmul(kept, value) / total, _Softmax(maximum, total)

    inputs = (query, key, value, context)
    output, softmax = _in_blocks(attend, *_wide(inputs))
    return output.astype(value.dtype), (*inputs, dropout_key, softmax)


def _backward(rate: float, saved: Any, d_output: jax.Array) -> Any:
    """The gradients; `d_x` denotes the gradient of x.

    As in `xla.backward`, with weights A that are computed again. The sum Σₛ A ∘ dA is not computed
    as Σₕ dO ∘ O, as flash attention does: where a query attends to one key alone, the gradient of
    its scores would not be 0.
    """
    query, key, value, context, dropout_key, softmax = saved

    def gradients(
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        context: AttentionContext,
        softmax: _Softmax,
        d_output: jax.Array,
    ) -> tuple[jax.Array, ...]:
        def drop(values: jax.Array) -> jax.Array:
            return dropped(rate, values, dropout_key, context.dropout_indices)

        weights = jnp.exp(_scores(query, key, context) - softmax.maximum) / softmax.total  # A
        d_value = matmul_tn(drop(weights), d_output)  # A'ᵀ dO, [..., S, H]
        a_da = weights * drop(matmul_nt(d_output, value))  # A ∘ dA, [..., T, S]
        d_scores = a_da - weights * a_da.sum(axis=-1, keepdims=True)
        d_scores = jnp.where(context.visible, d_scores, 0)
        d_query = matmul(d_scores, key) * scale(query)  # [..., T, H]
        return d_query, matmul_tn(d_scores, query * scale(query)), d_value

    operands = (query, key, value, context, softmax, d_output)
    found = _in_blocks(gradients, *_wide(operands))
    return (*(gradient.astype(value.dtype) for gradient in found), None, None)


attention.defvjp(_forward, _backward)


def _wide(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, with the activations in float32."""

    def widened(array: jax.Array) -> jax.Array:
        is_activation = jnp.issubdtype(array.dtype, jnp.floating)
        return array.astype(jnp.float32) if is_activation else array

    return jax.tree.map(widened, operands)


def _scores(query: jax.Array, key: jax.Array, context: AttentionContext) -> jax.Array:
    """Q Kᵀ / sqrt(H), float32 [..., T, S]; `MASK_VALUE` where a query does not see a key.

    What can be computed for [..., T, H] or [..., S] is not computed for [..., T, S]: the scale,
    and, where all queries of a row see the same keys, the mask. So the mask is a sum, which the
    lowest number absorbs.
    """
    mask = jnp.where(context.visible, 0, MASK_VALUE)
    return matmul_nt(query * scale(query), key) + mask


def _in_blocks(function: Callable[..., Any], *operands: Any) -> Any:
    """Applies a function of heads block after block.

    Args:
        function: takes the operands of any number of heads, and returns arrays with as many.
        operands: query [B, N, T, H] and key [B, N, S, H], then others, [B, N, ...], or [B, 1, ...]
            where all heads of a row have the same.

    Returns:
        What `function` returns for all heads, [B, N, ...].
    """
    query, key = operands[:2]
    leading = query.shape[:2]  # BN
    heads = _heads_of_block(math.prod(leading), 4 * query.shape[2] * key.shape[2])
    if heads == math.prod(leading):
        return function(*operands)

    def blocks_of(array: jax.Array) -> jax.Array:
        shape = array.shape[2:]
        return jnp.broadcast_to(array, (*leading, *shape)).reshape(-1, heads, *shape)

    results = jax.lax.map(lambda block: function(*block), jax.tree.map(blocks_of, operands))
    return jax.tree.map(lambda array: array.reshape(*leading, *array.shape[2:]), results)


def _heads_of_block(heads: int, bytes_of_head: int) -> int:
    """The largest divisor of the number of all heads that keeps a block small enough."""
    most = max(1, _BLOCK_BYTES // bytes_of_head)
    return next(count for count in range(min(most, heads), 0, -1) if heads % count == 0)


def _accepts(call: AttentionCall) -> bool:
    mesh = jax.sharding.get_abstract_mesh()
    # A loop over heads that are split over several devices would gather them on each device.
    is_unsharded = mesh.empty or mesh.size == 1
    # The weights of a call that returns them are computed for all heads in any case.
    return is_unsharded and not call.output_attentions and not _is_faster_in_bfloat16(call)


def _is_faster_in_bfloat16(call: AttentionCall) -> bool:
    # Measured with all-MiniLM-L6-v2 on a CPU with AVX-512 BF16, where products of the heads of all
    # rows lose only from 384 tokens on.
    return call.dtype == "bfloat16" and call.length < 384 and multiplies_bfloat16()


KERNEL = Kernel(
    name="blocked", function=attention, platforms=("cpu",), setting="xla", accepts=_accepts
)
