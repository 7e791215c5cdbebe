"""NVIDIA's fused attention, for rows of one text with the padding at the end."""

import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import AttentionInputs, Kernel


def attention(inputs: AttentionInputs) -> jax.Array:
    """The function of the kernel, [B, N, T, H]; cuDNN computes the gradient, too."""
    # Lengths, not a mask: cuDNN would compute a gradient for a mask.
    lengths = (inputs.mask.key_ids[:, 0] != 0).sum(axis=1, dtype=jnp.int32)
    output = jax.nn.dot_product_attention(
        inputs.query.swapaxes(1, 2),  # BTNH
        inputs.key.swapaxes(1, 2),
        inputs.value.swapaxes(1, 2),
        query_seq_lengths=jnp.full_like(lengths, inputs.query.shape[2]),
        key_value_seq_lengths=lengths,
        scale=inputs.scale,
        is_causal=inputs.mask.causal,
        implementation="cudnn",
    )
    return output.swapaxes(1, 2)  # BNTH


def _accepts(inputs: AttentionInputs) -> bool:
    mask = inputs.mask
    is_one_text = not mask.is_packed and (not mask.is_limited or mask.is_causal_alone)
    is_plain = inputs.bias is None and inputs.dropout is None
    return is_one_text and is_plain and inputs.query.dtype == jnp.bfloat16


KERNEL = Kernel(
    name="cudnn",
    function=attention,
    platforms=("gpu",),
    automatic=False,  # not benchmarked on a GPU yet
    min_length=512,
    is_fused=True,
    accepts=_accepts,
)
