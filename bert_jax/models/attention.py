"""Multi-head self-attention (Vaswani et al., 2017, section 3.2)."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.dropout import Numbers, dropped, key_of
from bert_jax.models.fused_attention import fused_attention, usable_kernel
from bert_jax.models.layers import dense
from bert_jax.models.products import product, sum_over_last, sum_over_rows
from bert_jax.models.segments import SegmentIds, Tokens

# Remat policies know the weights by this name.
ATTENTION_WEIGHTS = "attention weights"


def attention_weights(query: jax.Array, key: jax.Array, segments: SegmentIds) -> jax.Array:
    """softmax(q · k / sqrt(H)) over the keys that each query sees.

    Args:
        query: [B, N, T, H].
        key: [B, N, S, H].
        segments: which keys those are.

    Returns:
        float32 [B, N, T, S]; each row sums to 1. A row without any visible key is uniform, not
        NaN: the score of a hidden key is the least finite float32, not minus infinity.
    """
    scores = sum_over_last(query, key) * _scale(query)  # BNTS
    scores = jnp.where(_visible(segments), scores, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores, axis=-1)


def _scale(query: jax.Array) -> float:
    return 1 / math.sqrt(query.shape[-1])


def _visible(segments: SegmentIds) -> jax.Array:
    return segments.query[:, None, :, None] == segments.key[:, None, None, :]  # B1TS


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(
    rate: float,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    tokens: Tokens,
    dropout_key: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """What each query finds: the values, weighted by `attention_weights` after dropout.

    The backward pass keeps the weights in the dtype of the activations, and draws their dropout
    again.

    Args:
        rate: of the dropout; each example, head and position has its own mask, as in the original.
        query: [B, N, T, H].
        key: [B, N, S, H].
        value: [B, N, S, H].
        tokens: T and S are the same ones.
        dropout_key: uint32 [2].

    Returns:
        [B, N, T, H] in the dtype of the values, and the weights before dropout, float32
        [B, N, T, S]; where nobody reads them, the compiler drops them.
    """
    weights = attention_weights(query, key, tokens.segments)
    kept = dropped(rate, weights, dropout_key, _pairs(tokens, weights)).astype(value.dtype)
    return product(kept, value).astype(value.dtype), weights


def _forward(rate: float, *operands: Any) -> tuple[tuple[jax.Array, jax.Array], Any]:
    context, weights = attention(rate, *operands)
    saved = checkpoint_name(weights.astype(context.dtype), ATTENTION_WEIGHTS)
    return (context, weights), (*operands, saved)


def _backward(rate: float, saved: Any, cotangents: tuple[jax.Array, jax.Array]) -> Any:
    query, key, value, tokens, dropout_key, weights = saved
    of_context, of_weights = cotangents
    dtype = value.dtype
    pairs = _pairs(tokens, weights)
    kept = dropped(rate, weights.astype(jnp.float32), dropout_key, pairs).astype(dtype)
    of_value = sum_over_rows(kept, of_context)  # BNSH
    of_kept = sum_over_last(of_context, value)  # BNTS
    of_weights = of_weights + dropped(rate, of_kept, dropout_key, pairs)
    weighted = weights * of_weights
    of_scores = weighted - weights * weighted.sum(axis=-1, keepdims=True)
    of_scores = jnp.where(_visible(tokens.segments), of_scores * _scale(query), 0).astype(dtype)
    of_query = product(of_scores, key)  # BNTH
    of_key = sum_over_rows(of_scores, query)  # BNSH
    return (*(found.astype(dtype) for found in (of_query, of_key, of_value)), None, None)


def _pairs(tokens: Tokens, weights: jax.Array) -> Numbers:
    """Of each head and query, and of the keys of a text: what dropout draws by."""
    heads = weights.shape[1]
    rows = tokens.numbers[:, None, :] * heads + jnp.arange(heads)[:, None]  # BNT
    return Numbers(rows[..., None], tokens.places[:, None, None, :])


attention.defvjp(_forward, _backward)


class SelfAttention(nn.Module):
    """N heads that look at all tokens, and the projection of their findings back to D."""

    config: BertConfig
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
        kernel = usable_kernel(
            execution.attention,
            query.shape[2],
            rate,
            weights_wanted=output_attentions,
            one_text=tokens.segments.query.shape[1] == 1,
        )
        weights = None
        if kernel == "exact":
            dropout_key = key_of(self) if rate else jnp.zeros(2, jnp.uint32)
            context, weights = attention(rate, query, key, value, tokens, dropout_key)
        else:
            context = fused_attention(kernel, query, key, value, tokens.segments)
        context = context.swapaxes(1, 2)  # BTNH
        output = dense(config, execution, config.hidden_size, "output", axes=2)(context)
        return output, weights if output_attentions else None
