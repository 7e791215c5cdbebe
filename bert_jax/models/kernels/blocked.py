"""Attention on a CPU in blocks, whose scores and weights stay in the cache.

The scores of all rows and heads would pass through memory several times: at 256 tokens they have
more bytes than all other activations of a layer. As in flash attention (Dao et al., 2022,
https://arxiv.org/abs/2205.14135), the sum of the softmax divides the product with the values.

Inference splits the queries of each head into equal blocks, where their number has a suitable
divisor. XLA compiles all of it to one call of the library YNNPACK, which computes block after block
on all cores. Otherwise, and where dropout or a gradient is computed (YNNPACK has neither), a loop
computes a few heads at a time. The backward pass computes the weights again, from the maximum and
the sum of each query's scores.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import MASK_VALUE, AttentionInputs, AttentionMask, Kernel
from bert_jax.models.kernels.matmul import matmul, matmul_nt, matmul_tn

# The most bytes that the scores of a block of heads have, if that is not less than one head.
_BLOCK_BYTES = 4 * 2**20

# The most elements of a block of queries: its scores and the keys of the head. YNNPACK keeps the
# scores of all blocks if there are more: 512 tokens then take twice as long with heads of width 64.
_BLOCK_ELEMENTS = 5 * 2**14

# The fewest queries of each of several blocks; shorter ones are slower than a loop over heads.
_MIN_QUERIES = 48


class _Softmax(NamedTuple):
    """The values from which weights are computed, with the scores; both float32 [..., T, 1].

    Attributes:
        maximum: maximum of the scores of each query.
        total: sum of the exponentials of the scores minus the maximum.
    """

    maximum: jax.Array
    total: jax.Array


@jax.custom_vjp
def attention(inputs: AttentionInputs) -> jax.Array:
    """The function of the kernel, [B, N, T, H], in blocks of queries or of heads."""
    query, key, value = inputs.query, inputs.key, inputs.value
    *_, queries, width = query.shape
    blocks = _query_blocks(queries, width, key.shape[2])
    if inputs.dropout is not None or blocks is None:
        return _forward(inputs)[0]
    # XLA would store the values that all layers share, in the shape of the scores of all heads.
    query, mask, factor = jax.lax.optimization_barrier(
        (query, _mask(inputs.mask), jnp.float32(inputs.scale))
    )
    if blocks == 1:
        return _attend(query, key, value, mask, factor)[0]

    def split(array: jax.Array) -> jax.Array:
        """[B, N, T, ...] → [B, N, blocks, T / blocks, ...]; T = 1 is for all blocks."""
        lengths = (1, 1) if array.shape[2] == 1 else (blocks, array.shape[2] // blocks)
        return array.reshape(*array.shape[:2], *lengths, *array.shape[3:])

    def repeat(array: jax.Array) -> jax.Array:
        """[B, N, S, H] → [B, N, blocks, S, H]."""
        shape = (*array.shape[:2], blocks, *array.shape[2:])
        return jnp.broadcast_to(array[:, :, None], shape)

    output, _ = _attend(split(query), repeat(key), repeat(value), split(mask), factor)
    return output.reshape(query.shape)


def _query_blocks(queries: int, width: int, keys: int) -> int | None:
    """The number of equal blocks that T queries are split into; None if there is no such number."""
    most = queries // _MIN_QUERIES or 1
    counts = (count for count in range(1, most + 1) if queries % count == 0)
    fitting = (count for count in counts if (queries // count + width) * keys <= _BLOCK_ELEMENTS)
    return next(fitting, None)


def _attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array,
    factor: jax.Array | float,
    drop: Callable[[jax.Array], jax.Array] = lambda values: values,
) -> tuple[jax.Array, _Softmax]:
    """The output [..., T, H], and the values from which the backward pass computes the weights.

    For mask and factor see `_scores`.
    """
    scores = _scores(query, key, mask, factor)
    maximum = scores.max(axis=-1, keepdims=True)
    exponentials = jnp.exp(scores - maximum)
    total = exponentials.sum(axis=-1, keepdims=True)
    output = matmul(drop(exponentials).astype(value.dtype), value) / total
    return output.astype(value.dtype), _Softmax(maximum, total)


def _forward(inputs: AttentionInputs) -> tuple[jax.Array, Any]:
    """The output, and the residuals that `_backward` reads."""

    def attend(inputs: AttentionInputs) -> tuple[jax.Array, _Softmax]:
        mask = _mask(inputs.mask)
        return _attend(inputs.query, inputs.key, inputs.value, mask, inputs.scale, inputs.drop)

    output, softmax = _in_blocks(attend, inputs)
    return output.astype(inputs.value.dtype), (inputs, softmax)


def _backward(saved: Any, d_output: jax.Array) -> tuple[AttentionInputs]:
    """The gradients; `d_x` denotes the gradient of x.

    As in `xla.backward`, with weights A that are computed again. The sum Σₛ A ∘ dA is not computed
    as Σₕ dY ∘ Y, as flash attention does: where a query attends to one key alone, the gradient of
    its scores would not be 0.
    """
    inputs, softmax = saved
    dtype, factor = inputs.value.dtype, inputs.scale

    def gradients(
        inputs: AttentionInputs, softmax: _Softmax, d_output: jax.Array
    ) -> tuple[jax.Array, ...]:
        query, key, drop = inputs.query, inputs.key, inputs.drop
        scores = _scores(query, key, _mask(inputs.mask), factor)
        weights = jnp.exp(scores - softmax.maximum) / softmax.total  # A
        d_value = matmul_tn(drop(weights).astype(dtype), d_output)  # A'ᵀ dY, [..., S, H]
        a_da = weights * drop(matmul_nt(d_output, inputs.value))  # A ∘ dA, [..., T, S]
        d_scores = a_da - weights * a_da.sum(axis=-1, keepdims=True)
        d_scores = jnp.where(inputs.mask.visible, d_scores, 0).astype(dtype)
        d_query = matmul(d_scores, key) * factor  # [..., T, H]
        return d_query, matmul_tn(d_scores, query) * factor, d_value

    return inputs.gradients(*_in_blocks(gradients, inputs, softmax, d_output))


attention.defvjp(_forward, _backward)


def _scores(
    query: jax.Array, key: jax.Array, mask: jax.Array, factor: jax.Array | float
) -> jax.Array:
    """Q Kᵀ / sqrt(H), float32 [..., T, S]; `MASK_VALUE` where a query does not see a key.

    The sum with the mask is the lowest number where the mask is. The factor is the `scale` of the
    inputs.
    """
    return matmul_nt(query, key) * factor + mask


def _mask(mask: AttentionMask) -> jax.Array:
    """0, or `MASK_VALUE` where a query does not see a key, float32 [..., T, S] or [..., 1, S]."""
    return jnp.where(mask.visible, 0, MASK_VALUE)


def _in_blocks(function: Callable[..., Any], inputs: AttentionInputs, *others: Any) -> Any:
    """Applies a function of heads block after block.

    Args:
        function: takes `inputs` and `others` of any number of heads, returns arrays of as many.
        inputs: inputs of all heads; arrays [B, 1, ...] are the same for all heads of a row.
        others: further arrays, [B, N, ...].

    Returns:
        What `function` returns for all heads, [B, N, ...]. If there are several blocks,
        floating-point arrays are float32.
    """
    leading = inputs.query.shape[:2]  # BN
    heads = _heads_of_block(math.prod(leading), 4 * inputs.query.shape[2] * inputs.key.shape[2])
    if heads == math.prod(leading):
        return function(inputs, *others)
    arrays, structure = jax.tree.flatten((inputs, *others))
    has_heads = [array.ndim > 2 for array in arrays]  # all but the key of the dropout mask

    def blocks_of(array: jax.Array) -> jax.Array:
        shape = array.shape[2:]
        return jnp.broadcast_to(array, (*leading, *shape)).reshape(-1, heads, *shape)

    def compute(blocks: list[jax.Array]) -> Any:
        following = iter(blocks)
        operands = [
            next(following).astype(array.dtype) if is_split else array
            for array, is_split in zip(arrays, has_heads, strict=True)
        ]
        return _wide(function(*jax.tree.unflatten(structure, operands)))

    # A CPU's loop would convert a whole bfloat16 array to read or write a slice of it.
    split = [array for array, is_split in zip(arrays, has_heads, strict=True) if is_split]
    results = jax.lax.map(compute, [blocks_of(array) for array in _wide(split)])
    return jax.tree.map(lambda array: array.reshape(*leading, *array.shape[2:]), results)


def _wide(tree: Any) -> Any:
    """The tree with its floating-point arrays in float32."""

    def widened(array: jax.Array) -> jax.Array:
        is_floating = jnp.issubdtype(array.dtype, jnp.floating)
        return array.astype(jnp.float32) if is_floating else array

    return jax.tree.map(widened, tree)


def _heads_of_block(heads: int, bytes_of_head: int) -> int:
    """The largest divisor of the number of all heads that keeps a block small enough."""
    most = max(1, _BLOCK_BYTES // bytes_of_head)
    return next(count for count in range(min(most, heads), 0, -1) if heads % count == 0)


def _accepts(inputs: AttentionInputs) -> bool:
    # A loop over heads that are split over several devices would gather them on each device.
    mesh = jax.sharding.get_abstract_mesh()
    return inputs.bias is None and (mesh.empty or mesh.size == 1)


KERNEL = Kernel(
    name="blocked", function=attention, platforms=("cpu",), setting="xla", accepts=_accepts
)
