"""Attention as matrix products, which XLA compiles for every platform, with a custom gradient.

Differences from `definition.attention`: products of bfloat16 values are summed in float32, the
softmax is float32, and the backward pass stores only the weights, in the dtype of the activations.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.attention_inputs import MASK_VALUE, AttentionInputs, Kernel
from bert_jax.models.kernels.matmul import matmul, matmul_nt, matmul_tn

# Remat policies know the weights by this name.
ATTENTION_WEIGHTS = "attention weights"


@jax.custom_vjp
def attention(inputs: AttentionInputs) -> jax.Array:
    """The function of the kernel, [B, N, T, H]; see `forward` and `backward` for its gradient."""
    return attend(inputs)[0]


def attention_weights(inputs: AttentionInputs) -> jax.Array:
    """The softmax, float32 [..., T, S]; each row sums to 1.

    A row without any visible key is uniform, not NaN.
    """
    scores = matmul_nt(inputs.query, inputs.key) * inputs.scale  # [..., T, S]
    if inputs.bias is not None:
        scores += inputs.bias
    return jax.nn.softmax(jnp.where(inputs.mask.visible, scores, MASK_VALUE), axis=-1)


def attend(inputs: AttentionInputs) -> tuple[jax.Array, jax.Array]:
    """The output [..., T, H], and the weights before dropout [..., T, S] for the backward pass."""
    dtype = inputs.value.dtype
    weights = attention_weights(inputs)
    output = matmul(inputs.drop(weights).astype(dtype), inputs.value)
    return output.astype(dtype), weights.astype(dtype)


def forward(inputs: AttentionInputs) -> tuple[jax.Array, Any]:
    """The forward pass for a gradient: the output, and the residuals that `backward` reads."""
    output, weights = attend(inputs)
    return output, (inputs, checkpoint_name(weights, ATTENTION_WEIGHTS))


def backward(saved: Any, d_output: jax.Array) -> tuple[AttentionInputs]:
    """The gradients; `d_x` denotes the gradient of x.

    With Y for the output, A for the weights and A' for the weights after dropout: dV = A'ᵀ dY and
    dA' = dY Vᵀ; dropout keeps the same elements as in the forward pass, which gives dA. With Z the
    scores Q Kᵀ / sqrt(H) + bias, dZ = A ∘ (dA - Σₛ A ∘ dA), the gradient of the bias; then
    dQ = dZ K / sqrt(H) and dK = dZᵀ Q / sqrt(H).
    """
    inputs, weights = saved
    dtype = inputs.value.dtype
    kept = inputs.drop(weights.astype(jnp.float32)).astype(dtype)
    d_value = matmul_tn(kept, d_output)  # A'ᵀ dY, BNSH
    d_kept = matmul_nt(d_output, inputs.value)  # dY Vᵀ, BNTS
    a_da = weights * inputs.drop(d_kept)  # A ∘ dA, BNTS
    d_scores = a_da - weights * a_da.sum(axis=-1, keepdims=True)
    d_scores = jnp.where(inputs.mask.visible, d_scores, 0)
    d_bias = None
    if inputs.bias is not None:  # summed over the axes along which it was broadcast
        broadcast = functools.partial(jnp.broadcast_to, shape=d_scores.shape)
        (d_bias,) = jax.linear_transpose(broadcast, inputs.bias)(d_scores)
    d_scores = (d_scores * inputs.scale).astype(dtype)
    d_query = matmul(d_scores, inputs.key)  # BNTH
    d_key = matmul_tn(d_scores, inputs.query)  # BNSH
    return inputs.gradients(d_query, d_key, d_value, d_bias)


attention.defvjp(forward, backward)

KERNEL = Kernel(name="xla", function=attention)
