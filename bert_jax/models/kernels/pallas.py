"""JAX's flash attention for TPUs, which never writes the attention weights to memory.

Source: Dao et al., 2022, https://arxiv.org/abs/2205.14135; jax.experimental.pallas.ops.tpu.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.kernels import Kernel
from bert_jax.models.packed_rows import AttentionContext


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> jax.Array:
    """Computes `models.attention.attention` without dropout."""
    key_ids = context.key_segment_ids[:, 0]  # BS
    query_ids = jnp.broadcast_to(context.query_segment_ids[:, 0], key_ids.shape)
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return _flash_attention(query, key, value, query_ids, key_ids)
    # The compiler cannot split a kernel; each device calls it for its rows and heads: for all heads
    # of a generator, which may be too few to split.
    is_split = query.shape[1] % mesh.shape["tensor"] == 0
    heads = nn.logical_to_mesh_axes(("batch", "heads" if is_split else None, None, None))
    rows = nn.logical_to_mesh_axes(("batch", None))
    return jax.shard_map(
        _flash_attention,
        in_specs=(heads, heads, heads, rows, rows),
        out_specs=heads,
        check_vma=False,
    )(query, key, value, query_ids, key_ids)


def _flash_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, query_ids: jax.Array, key_ids: jax.Array
) -> jax.Array:
    from jax.experimental.pallas.ops.tpu import flash_attention

    return flash_attention.flash_attention(
        query,
        key,
        value,
        segment_ids=flash_attention.SegmentIds(query_ids, key_ids),
        sm_scale=1 / math.sqrt(query.shape[-1]),
    )


KERNEL = Kernel(
    name="pallas",
    function=attention,
    platforms=("tpu",),
    min_length=512,  # for shorter rows the weights are small compared to the activations
    length_multiple=128,  # it works on blocks of 128 tokens
    accepts=lambda call: call.dropout_rate == 0 and not call.output_attentions,
)
