"""Attention by kernels of JAX that never write the weights of all pairs of tokens to memory.

They compute what `attention.attention` computes, without dropout and without giving the weights.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.segments import SegmentIds

# The TPU kernel works on blocks of so many tokens.
_BLOCK = 128

# Below this length the weights are small beside the activations, and XLA's own fusion is good.
_WORTHWHILE = 512


def select_kernel(
    wanted: str,
    length: int,
    rate: float,
    *,
    weights_wanted: bool,
    one_text: bool = True,
    dtype: str = "bfloat16",
) -> str:
    """The kernel for a call: the wanted one, or "xla" where it cannot or need not be used.

    Args:
        wanted: `Execution.attention`.
        length: T.
        rate: of the dropout on the weights.
        weights_wanted: whether the weights are asked for.
        one_text: whether no row holds several texts.
        dtype: of the activations.
    """
    too_short = length < _WORTHWHILE or (wanted == "pallas" and length % _BLOCK)
    # It knows lengths alone, and numbers of 16 bits.
    not_cudnns = wanted == "cudnn" and not (one_text and dtype == "bfloat16")
    return "xla" if rate or weights_wanted or too_short or not_cudnns else wanted


def fused_attention(
    kernel: str, query: jax.Array, key: jax.Array, value: jax.Array, segments: SegmentIds
) -> jax.Array:
    """What each query finds.

    Args:
        kernel: "pallas", a flash attention of JAX for TPUs (Dao et al., 2022), or "cudnn", NVIDIA's
            own; that one computes rows of one text alone, whose hidden keys stand at their end.
        query: [B, N, T, H].
        key: [B, N, T, H].
        value: [B, N, T, H].
        segments: who sees whom.

    Returns:
        [B, N, T, H] in the dtype of the values.
    """
    if kernel == "cudnn":
        return _by_cudnn(query, key, value, segments)
    heads = nn.logical_to_mesh_axes(("batch", "heads", None, None))
    rows = nn.logical_to_mesh_axes(("batch", None))
    queries = jnp.broadcast_to(segments.query, segments.key.shape)
    if jax.sharding.get_abstract_mesh().empty:
        return _by_pallas(query, key, value, queries, segments.key)
    # The compiler cannot split a kernel; each device calls it for its rows and heads.
    return jax.shard_map(
        _by_pallas,
        in_specs=(heads, heads, heads, rows, rows),
        out_specs=heads,
        check_vma=False,
    )(query, key, value, queries, segments.key)


def _by_pallas(
    query: jax.Array, key: jax.Array, value: jax.Array, of_queries: jax.Array, of_keys: jax.Array
) -> jax.Array:
    from jax.experimental.pallas.ops.tpu import flash_attention

    return flash_attention.flash_attention(
        query,
        key,
        value,
        segment_ids=flash_attention.SegmentIds(of_queries, of_keys),
        sm_scale=1 / math.sqrt(query.shape[-1]),
    )


def _by_cudnn(
    query: jax.Array, key: jax.Array, value: jax.Array, segments: SegmentIds
) -> jax.Array:
    # Lengths, not a mask: of a mask it would compute a gradient.
    lengths = (segments.key != 0).sum(axis=1, dtype=jnp.int32)
    found = jax.nn.dot_product_attention(
        query.swapaxes(1, 2),
        key.swapaxes(1, 2),
        value.swapaxes(1, 2),
        query_seq_lengths=jnp.full_like(lengths, query.shape[2]),
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return found.swapaxes(1, 2)
