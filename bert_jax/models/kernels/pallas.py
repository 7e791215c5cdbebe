"""JAX's flash attention for TPUs, which never writes the attention weights to memory.

Source: Dao et al., 2022, https://arxiv.org/abs/2205.14135; jax.experimental.pallas.ops.tpu.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import AttentionInputs, Kernel


def attention(inputs: AttentionInputs) -> jax.Array:
    """The function of the kernel, [B, N, T, H], on each device of a mesh for its rows and heads."""
    key_ids = inputs.mask.key_ids[:, 0]  # BS
    query_ids = jnp.broadcast_to(inputs.mask.query_ids[:, 0], inputs.query.shape[::2])  # BT
    operands = (inputs.query, inputs.key, inputs.value, query_ids, key_ids)
    causal = inputs.mask.causal
    compute = functools.partial(_flash_attention, scale=inputs.scale, causal=causal)
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return compute(*operands)
    # The compiler cannot split a kernel; each device calls it for its rows and heads: for all heads
    # of a generator, which may be too few to split.
    is_split = inputs.query.shape[1] % mesh.shape["tensor"] == 0
    heads = nn.logical_to_mesh_axes(("batch", "heads" if is_split else None, None, None))
    rows = nn.logical_to_mesh_axes(("batch", None))
    return jax.shard_map(
        compute,
        in_specs=(heads, heads, heads, rows, rows),
        out_specs=heads,
        check_vma=False,
    )(*operands)


def _flash_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_ids: jax.Array,
    key_ids: jax.Array,
    *,
    scale: float,
    causal: bool,
) -> jax.Array:
    from jax.experimental.pallas.ops.tpu import flash_attention

    segment_ids = flash_attention.SegmentIds(query_ids, key_ids)
    return flash_attention.flash_attention(
        query, key, value, segment_ids=segment_ids, sm_scale=scale, causal=causal
    )


def _accepts(inputs: AttentionInputs) -> bool:
    is_plain = inputs.bias is None and inputs.dropout is None
    # Its causal mask compares places in a row, where the tokens of a text are in their order.
    return is_plain and (not inputs.mask.is_limited or inputs.mask.is_causal_alone)


KERNEL = Kernel(
    name="pallas",
    function=attention,
    platforms=("tpu",),
    min_length=512,  # for shorter rows the weights are small compared to the activations
    length_multiple=128,  # it works on blocks of 128 tokens
    is_fused=True,
    accepts=_accepts,
)
