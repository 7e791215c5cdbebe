"""Multi-head self-attention (Vaswani et al., 2017, section 3.2)."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.dropout import Numbers, dropped, key_of
from bert_jax.models.fused_attention import fused_attention, usable_kernel
from bert_jax.models.layers import dense
from bert_jax.models.products import product, product_over_last, product_over_rows
from bert_jax.models.segments import Tokens

# Remat policies know the weights by this name.
ATTENTION_WEIGHTS = "attention weights"

# The weights of all rows and heads pass through memory several times; those of one head of 512
# tokens stay in a processor's cache. Measured on a CPU where no gradient is wanted: the encoder
# takes 0.77 to 0.88 times as long from this length on, 1.0 at 256; narrow heads in bfloat16 take
# longer. With gradients nothing is won.
_LONG_ON_CPU = 384
_NARROW = 64


class TokenPairs(NamedTuple):
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
    def of(cls, tokens: Tokens, heads: int) -> "TokenPairs":
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


def attention_weights(query: jax.Array, key: jax.Array, pairs: TokenPairs) -> jax.Array:
    """softmax(q · k / sqrt(H)) over the keys that each query sees.

    Args:
        query: [..., T, H].
        key: [..., S, H].
        pairs: which keys those are.

    Returns:
        float32 [..., T, S]; each row sums to 1. A row without any visible key is uniform, not
        NaN: the score of a hidden key is the least finite float32, not minus infinity.
    """
    scores = product_over_last(query, key) * _scale(query)
    scores = jnp.where(pairs.visible, scores, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores, axis=-1)


def _scale(query: jax.Array) -> float:
    return 1 / math.sqrt(query.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(
    rate: float,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    pairs: TokenPairs,
    dropout_key: jax.Array,
) -> jax.Array:
    """What each query finds: the values, weighted by `attention_weights` after dropout.

    With A for the weights and A' for those after dropout, O = A' V. The backward pass keeps A, in
    the dtype of the activations, and draws the dropout again.

    Args:
        rate: of the dropout; each example, head and position has its own mask, as in the original.
        query: [B, N, T, H].
        key: [B, N, S, H].
        value: [B, N, S, H].
        pairs: [B, N, ...] or [B, 1, ...].
        dropout_key: uint32 [2].

    Returns:
        [B, N, T, H] in the dtype of the values.
    """

    def attend(*of_heads: Any) -> jax.Array:
        return _attend(rate, dropout_key, *of_heads)[0]

    return _on_long_rows_head_by_head(attend, query, key, value, pairs)


def _attend(
    rate: float,
    dropout_key: jax.Array,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    pairs: TokenPairs,
) -> tuple[jax.Array, jax.Array]:
    """[..., T, H], and what the backward pass keeps: the weights [..., T, S] before dropout."""
    weights = attention_weights(query, key, pairs)
    kept = dropped(rate, weights, dropout_key, pairs.numbers).astype(value.dtype)
    return product(kept, value).astype(value.dtype), weights.astype(value.dtype)


def _forward(rate: float, *operands: Any) -> tuple[jax.Array, Any]:
    *of_heads, dropout_key = operands
    context, weights = _attend(rate, dropout_key, *of_heads)
    return context, (*operands, checkpoint_name(weights, ATTENTION_WEIGHTS))


def _backward(rate: float, saved: Any, of_context: jax.Array) -> Any:
    """The gradients; `of_x` is that of x.

    dV = A'ᵀ dO; dA' = dO Vᵀ, of which dropout lets through the same as before: dA; of the softmax
    dS = A ∘ (dA - Σₛ A ∘ dA), where S = Q Kᵀ / sqrt(H); dQ = dS K / sqrt(H), dK = dSᵀ Q / sqrt(H).
    """
    query, key, value, pairs, dropout_key, weights = saved
    dtype = value.dtype
    kept = dropped(rate, weights.astype(jnp.float32), dropout_key, pairs.numbers).astype(dtype)
    of_value = product_over_rows(kept, of_context)  # BNSH
    of_kept = product_over_last(of_context, value)  # BNTS
    weighted = weights * dropped(rate, of_kept, dropout_key, pairs.numbers)  # BNTS
    of_scores = weighted - weights * weighted.sum(axis=-1, keepdims=True)
    of_scores = jnp.where(pairs.visible, of_scores * _scale(query), 0).astype(dtype)
    of_query = product(of_scores, key)  # BNTH
    of_key = product_over_rows(of_scores, query)  # BNSH
    return (*(found.astype(dtype) for found in (of_query, of_key, of_value)), None, None)


attention.defvjp(_forward, _backward)


def _on_long_rows_head_by_head(
    attend: Callable[..., jax.Array], query: jax.Array, *others: Any
) -> jax.Array:
    """`attend` of arrays [B, N, ...] or [B, 1, ...]: at once, or of one head after another."""
    *heads, length, width = query.shape

    def one_by_one(*operands: Any) -> jax.Array:
        def flat(array: jax.Array) -> jax.Array:
            shape = array.shape[2:]
            return jnp.broadcast_to(array, (*heads, *shape)).reshape(-1, *shape)

        found = jax.lax.map(lambda of_head: attend(*of_head), jax.tree.map(flat, operands))
        return found.reshape(query.shape)

    mesh = jax.sharding.get_abstract_mesh()
    is_whole = mesh.empty or mesh.size == 1  # a loop over what devices share would gather it
    is_wide = query.dtype == jnp.float32 or width >= _NARROW
    if length < _LONG_ON_CPU or not (is_whole and is_wide):
        return attend(query, *others)
    return jax.lax.platform_dependent(query, *others, cpu=one_by_one, default=attend)


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
            dtype=execution.dtype,
        )
        pairs = TokenPairs.of(tokens, config.num_attention_heads)
        if kernel == "exact":
            dropout_key = key_of(self) if rate else jnp.zeros(2, jnp.uint32)
            context = attention(rate, query, key, value, pairs, dropout_key)
        else:
            context = fused_attention(kernel, query, key, value, tokens.segments)
        context = context.swapaxes(1, 2)  # BTNH
        output = dense(config, execution, config.hidden_size, "output", axes=2)(context)
        # Who asks for the weights has them computed by themselves; the compiler merges the two,
        # unless `attention` goes head by head.
        return output, attention_weights(query, key, pairs) if output_attentions else None
