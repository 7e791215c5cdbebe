"""Multi-head self-attention (Vaswani et al., 2017, section 3.2)."""

import functools
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.config import EncoderConfig, Execution
from bert_jax.models.dropout import Numbers, dropped, key_of
from bert_jax.models.kernels.fused_attention import fused_attention, select_kernel
from bert_jax.models.kernels.matmul import matmul, matmul_nt, matmul_tn
from bert_jax.models.kernels.per_head_attention import per_head_attention
from bert_jax.models.layers import MASK_VALUE, dense
from bert_jax.models.segments import Tokens

# Remat policies know the weights by this name.
ATTENTION_WEIGHTS = "attention weights"


class AttentionContext(NamedTuple):
    """What is known of pairs of a query and a key besides their vectors; the last axis is T or S.

    Attributes:
        query_segments: int32 [..., T] or [..., 1]; a query sees the keys that have its number.
        key_segments: int32 [..., S].
        rows: int32 [..., T], a number of its own for each query of each head: dropout draws by it.
        places: int32 [..., S], where a key stands in its text's row.
    """

    query_segments: jax.Array
    key_segments: jax.Array
    rows: jax.Array
    places: jax.Array

    @classmethod
    def of(cls, tokens: Tokens, heads: int) -> "AttentionContext":
        """Of N heads: [B, 1, ...] or [B, N, ...]."""
        rows = tokens.numbers[:, None] * heads + jnp.arange(heads)[:, None]  # BNT
        segments = tokens.segments
        return cls(segments.query[:, None], segments.key[:, None], rows, tokens.places[:, None])

    @property
    def visible(self) -> jax.Array:
        """Whether a query sees a key, bool [..., T, S]."""
        return self.query_segments[..., :, None] == self.key_segments[..., None, :]

    @property
    def numbers(self) -> Numbers:
        """What the dropout of the weights draws by."""
        return Numbers(self.rows[..., :, None], self.places[..., None, :])


def attention_weights(query: jax.Array, key: jax.Array, pairs: AttentionContext) -> jax.Array:
    """softmax(q · k / sqrt(H)) over the keys that each query sees.

    Args:
        query: [..., T, H].
        key: [..., S, H].
        pairs: which keys those are.

    Returns:
        float32 [..., T, S]; each row sums to 1. A row without any visible key is uniform, not
        NaN: the score of a hidden key is the least finite float32, not minus infinity.
    """
    scores = matmul_nt(query, key) * _scale(query)  # Q Kᵀ / sqrt(H), [..., T, S]
    scores = jnp.where(pairs.visible, scores, MASK_VALUE)
    return jax.nn.softmax(scores, axis=-1)


def _scale(query: jax.Array) -> float:
    return 1 / math.sqrt(query.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(
    rate: float,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    pairs: AttentionContext,
    dropout_key: jax.Array,
) -> jax.Array:
    """softmax(Q Kᵀ / sqrt(H)) V (Vaswani et al., 2017, equation 1), with dropout on the softmax.

    With A for the weights and A' for those after dropout, it is A' V. The backward pass keeps A, in
    the dtype of the activations, and draws the dropout again.

    Args:
        rate: of the dropout; each example, head and position has its own mask, as in the original.
        query: Q, [B, N, T, H].
        key: K, [B, N, S, H].
        value: V, [B, N, S, H].
        pairs: [B, N, ...] or [B, 1, ...].
        dropout_key: uint32 [2].

    Returns:
        [B, N, T, H] in the dtype of the values.
    """
    # This runs only where no gradient is wanted; with one, `_forward` takes its place.

    def attend(
        query: jax.Array, key: jax.Array, value: jax.Array, pairs: AttentionContext
    ) -> jax.Array:
        return _attend(rate, query, key, value, pairs, dropout_key)[0]

    return per_head_attention(attend, query, key, value, pairs)


def _attend(
    rate: float,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    pairs: AttentionContext,
    dropout_key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """A' V, [..., T, H]; and A, [..., T, S], which the backward pass keeps."""
    weights = attention_weights(query, key, pairs)
    kept = dropped(rate, weights, dropout_key, pairs.numbers).astype(value.dtype)
    context = matmul(kept, value)  # A' V
    return context.astype(value.dtype), weights.astype(value.dtype)


def _forward(rate: float, *operands: Any) -> tuple[jax.Array, Any]:
    context, weights = _attend(rate, *operands)
    return context, (*operands, checkpoint_name(weights, ATTENTION_WEIGHTS))


def _backward(rate: float, saved: Any, d_context: jax.Array) -> Any:
    """The gradients; `d_x` is that of x, and dO that of the result.

    dV = A'ᵀ dO and dA' = dO Vᵀ, of which dropout lets through the same as before: dA. Of the
    softmax, with S for the scores Q Kᵀ / sqrt(H), dS = A ∘ (dA - Σₛ A ∘ dA); then
    dQ = dS K / sqrt(H) and dK = dSᵀ Q / sqrt(H).
    """
    query, key, value, pairs, dropout_key, weights = saved
    dtype = value.dtype
    kept = dropped(rate, weights.astype(jnp.float32), dropout_key, pairs.numbers).astype(dtype)
    d_value = matmul_tn(kept, d_context)  # A'ᵀ dO, BNSH
    d_kept = matmul_nt(d_context, value)  # dO Vᵀ, BNTS
    a_da = weights * dropped(rate, d_kept, dropout_key, pairs.numbers)  # A ∘ dA, BNTS
    d_scores = a_da - weights * a_da.sum(axis=-1, keepdims=True)
    d_scores = jnp.where(pairs.visible, d_scores * _scale(query), 0).astype(dtype)
    d_query = matmul(d_scores, key)  # BNTH
    d_key = matmul_tn(d_scores, query)  # BNSH
    return (*(found.astype(dtype) for found in (d_query, d_key, d_value)), None, None)


attention.defvjp(_forward, _backward)


class SelfAttention(nn.Module):
    """N heads that look at all tokens, and the projection of their findings back to D."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        tokens: Tokens,
        *,
        deterministic: bool,
        output_attentions: bool = False,
    ) -> tuple[jax.Array, jax.Array | None]:
        """[B, T, D] → [B, T, D]; and the weights before dropout, float32 [B, N, T, T], or None."""
        config, execution = self.config, self.execution
        heads = (config.num_attention_heads, config.head_dim)
        # One matrix for each head: products of a batch of matrices are what is fast everywhere.
        query, key, value = (
            dense(config, execution, heads, name)(hidden).swapaxes(1, 2)  # BNTH
            for name in ("query", "key", "value")
        )

        rate = 0.0 if deterministic else config.attention_probs_dropout_prob
        kernel = select_kernel(
            execution.attention,
            query.shape[2],
            rate,
            weights_wanted=output_attentions,
            one_text=tokens.segments.query.shape[1] == 1,
            dtype=execution.dtype,
        )
        pairs = AttentionContext.of(tokens, config.num_attention_heads)
        if kernel == "xla":
            dropout_key = key_of(self) if rate else jnp.zeros(2, jnp.uint32)
            context = attention(rate, query, key, value, pairs, dropout_key)
        else:
            context = fused_attention(kernel, query, key, value, tokens.segments)
        context = context.swapaxes(1, 2)  # BTNH
        output = dense(config, execution, config.hidden_size, "output", axes=2)(context)
        # Who asks for the weights has them computed by themselves; the compiler merges the two,
        # unless attention goes head by head.
        return output, attention_weights(query, key, pairs) if output_attentions else None
