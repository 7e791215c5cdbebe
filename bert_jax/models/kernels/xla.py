"""Attention as matrix products, which XLA compiles for every platform, with a custom gradient.

Differences from `models.attention.attention`: products of bfloat16 values are summed in float32,
the softmax is float32, and the backward pass stores only the weights, in the dtype of the
activations.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.dropout import dropped
from bert_jax.models.kernels import MASK_VALUE, PLATFORMS, Kernel
from bert_jax.models.kernels.matmul import matmul, matmul_nt, matmul_tn
from bert_jax.models.packed_rows import AttentionContext

# Remat policies know the weights by this name.
ATTENTION_WEIGHTS = "attention weights"


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> jax.Array:
    return attend(query, key, value, context, rate, dropout_key)[0]


def attention_weights(query: jax.Array, key: jax.Array, context: AttentionContext) -> jax.Array:
    """softmax(Q Kᵀ / sqrt(H)) over the keys that each query sees.

    Args:
        query: [..., T, H].
        key: [..., S, H].
        context: segment ids and positions, which decide the keys that each query sees.

    Returns:
        float32 [..., T, S]; each row sums to 1. A row without any visible key is uniform, not NaN.
    """
    scores = matmul_nt(query, key) * scale(query)  # [..., T, S]
    scores = jnp.where(context.visible, scores, MASK_VALUE)
    return jax.nn.softmax(scores, axis=-1)


def scale(query: jax.Array) -> float:
    """1 / sqrt(H)."""
    return 1 / math.sqrt(query.shape[-1])


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The output [..., T, H], and the weights before dropout [..., T, S] for the backward pass."""
    weights = attention_weights(query, key, context)
    dropped_weights = dropped(rate, weights, dropout_key, context.dropout_indices)
    output = matmul(dropped_weights.astype(value.dtype), value)
    return output.astype(value.dtype), weights.astype(value.dtype)


def forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> tuple[jax.Array, Any]:
    """The forward pass for a gradient: the output, and the residuals that `backward` reads."""
    output, weights = attend(query, key, value, context, rate, dropout_key)
    weights = checkpoint_name(weights, ATTENTION_WEIGHTS)
    return output, (query, key, value, context, dropout_key, weights)


def backward(rate: float, saved: Any, d_output: jax.Array) -> Any:
    """The gradients; `d_x` denotes the gradient of x.

    With O for the output, A for the weights and A' for the weights after dropout: dV = A'ᵀ dO and
    dA' = dO Vᵀ; dropout keeps the same elements as in the forward pass, which gives dA. With Z the
    scores Q Kᵀ / sqrt(H), dZ = A ∘ (dA - Σₛ A ∘ dA); then dQ = dZ K / sqrt(H) and
    dK = dZᵀ Q / sqrt(H).
    """
    query, key, value, context, dropout_key, weights = saved
    dtype = value.dtype

    def drop(values: jax.Array) -> jax.Array:
        return dropped(rate, values, dropout_key, context.dropout_indices)

    kept = drop(weights.astype(jnp.float32)).astype(dtype)
    d_value = matmul_tn(kept, d_output)  # A'ᵀ dO, BNSH
    d_kept = matmul_nt(d_output, value)  # dO Vᵀ, BNTS
    a_da = weights * drop(d_kept)  # A ∘ dA, BNTS
    d_scores = a_da - weights * a_da.sum(axis=-1, keepdims=True)
    d_scores = jnp.where(context.visible, d_scores * scale(query), 0).astype(dtype)
    d_query = matmul(d_scores, key)  # BNTH
    d_key = matmul_tn(d_scores, query)  # BNSH
    return (*(gradient.astype(dtype) for gradient in (d_query, d_key, d_value)), None, None)


attention.defvjp(forward, backward)

KERNEL = Kernel(name="xla", function=attention, platforms=PLATFORMS)
