"""NVIDIA's fused attention, for rows of one text."""

import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import AttentionInputs, Kernel


def attention(inputs: AttentionInputs) -> jax.Array:
    """The function of the kernel, [B, N, T, H]; cuDNN computes the gradient, too.

    cuDNN takes the number of keys that a row sees: a mask it would treat as a bias, and compute
    its gradient. The order of the keys does not matter, so those that are seen come first.
    """
    query, mask = inputs.query, inputs.mask
    is_visible = mask.query_ids[:, 0] == mask.key_ids[:, 0]  # BS
    lengths = is_visible.sum(axis=1, dtype=jnp.int32)
    places = jnp.arange(is_visible.shape[1])
    key, value = jax.lax.cond(
        jnp.all(is_visible == (places < lengths[:, None])),
        lambda _, *arrays: arrays,
        _visible_first,
        *(is_visible, inputs.key, inputs.value),
    )
    # A query that sees no key attends to all equally.
    query = jnp.where(lengths[:, None, None, None] > 0, query, 0)
    lengths = jnp.where(lengths > 0, lengths, len(places))
    output = jax.nn.dot_product_attention(
        query.swapaxes(1, 2),  # BTNH
        key.swapaxes(1, 2),
        value.swapaxes(1, 2),
        query_seq_lengths=jnp.full_like(lengths, query.shape[2]),
        key_value_seq_lengths=lengths,
        scale=inputs.scale,
        is_causal=mask.causal,
        implementation="cudnn",
    )
    return output.swapaxes(1, 2)  # BNTH


def _visible_first(is_visible: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Arrays [B, N, S, H] with the visible keys before the others; `is_visible`, bool [B, S]."""
    order = jnp.argsort(~is_visible, axis=1)[:, None, :, None]
    return tuple(jnp.take_along_axis(array, order, axis=2) for array in arrays)


def _accepts(inputs: AttentionInputs) -> bool:
    mask = inputs.mask
    # With `causal` the order of the keys matters: none may be hidden.
    is_computed = not mask.is_limited or (mask.is_causal_alone and mask.all_visible)
    is_plain = inputs.bias is None and inputs.dropout is None
    return not mask.is_packed and is_computed and is_plain and inputs.query.dtype == jnp.bfloat16


KERNEL = Kernel(
    name="cudnn",
    function=attention,
    platforms=("gpu",),
    automatic=False,  # not benchmarked on a GPU yet
    min_length=512,
    is_fused=True,
    accepts=_accepts,
)
