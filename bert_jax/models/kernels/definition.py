"""Attention by the definition of the paper: the reference for all kernels.

It runs where `model.attention` is "definition".
"""

import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import MASK_VALUE, AttentionInputs, Kernel


def attention(inputs: AttentionInputs) -> jax.Array:
    """softmax(Q Kᵀ / sqrt(H)) V (Vaswani et al., 2017, equation 1), [B, N, T, H]."""
    scores = jnp.einsum(
        "BNTH,BNSH->BNTS", inputs.query, inputs.key, preferred_element_type=jnp.float32
    )
    scores = scores * inputs.scale
    if inputs.bias is not None:
        scores = scores + inputs.bias
    scores = jnp.where(inputs.mask.visible, scores, MASK_VALUE)
    weights = inputs.drop(jax.nn.softmax(scores, axis=-1))
    return jnp.einsum("BNTS,BNSH->BNTH", weights.astype(inputs.value.dtype), inputs.value)


KERNEL = Kernel(name="definition", function=attention)
