"""Multi-head self-attention (Vaswani et al., 2017, section 3.2)."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.layers import dense


class SegmentIds(NamedTuple):
    """Who looks at whom: a query sees the keys that have its number.

    So the [T, S] table of who sees whom is never stored; it arises where scores are computed. Fused
    attention kernels take it in this form, too.

    Attributes:
        query: int32 [B, T], or [B, 1] where all queries of a row have the same number.
        key: int32 [B, S].
    """

    query: jax.Array
    key: jax.Array


def attention_weights(query: jax.Array, key: jax.Array, segments: SegmentIds) -> jax.Array:
    """softmax(q · k / sqrt(H)) over the keys that each query sees.

    Args:
        query: [B, T, N, H].
        key: [B, S, N, H].
        segments: which keys those are.

    Returns:
        float32 [B, N, T, S]; each row sums to 1. A row without any visible key is uniform, not
        NaN: the score of a hidden key is the least finite float32, not minus infinity.
    """
    scores = jnp.einsum("BTNH,BSNH->BNTS", query, key, preferred_element_type=jnp.float32)
    scores = scores / jnp.sqrt(jnp.float32(query.shape[-1]))
    hidden_score = jnp.finfo(jnp.float32).min
    visible = segments.query[:, None, :, None] == segments.key[:, None, None, :]  # B1TS
    scores = jnp.where(visible, scores, hidden_score)
    return jax.nn.softmax(scores, axis=-1)


class SelfAttention(nn.Module):
    """N heads that look at all tokens, and the projection of their findings back to D."""

    config: BertConfig
    execution: Execution

    @nn.compact
    def __call__(
        self, hidden: jax.Array, segments: SegmentIds, *, deterministic: bool
    ) -> tuple[jax.Array, jax.Array]:
        """[B, T, D] → [B, T, D] and the weights before dropout, float32 [B, N, T, T].

        Where nobody reads the weights, the compiler drops them.
        """
        config, execution = self.config, self.execution
        heads = (config.num_attention_heads, config.head_dim)
        query = dense(config, execution, heads, "query")(hidden)  # BTNH
        key = dense(config, execution, heads, "key")(hidden)  # BTNH
        value = dense(config, execution, heads, "value")(hidden)  # BTNH

        weights = attention_weights(query, key, segments)  # BNTS
        # Each example, head and position draws its own mask, as in the original.
        dropped = nn.Dropout(config.attention_probs_dropout_prob)(
            weights, deterministic=deterministic
        ).astype(value.dtype)
        context = jnp.einsum("BNTS,BSNH->BTNH", dropped, value)
        output = dense(config, execution, config.hidden_size, "output", axis=(-2, -1))(context)
        return output, weights
