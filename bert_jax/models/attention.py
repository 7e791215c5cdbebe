"""Multi-head self-attention (Vaswani et al., 2017, section 3.2).

`attention` is the definition, which every kernel computes, only faster. Models call
`SelfAttention`, which selects a kernel from `models.kernels`.
"""

import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import dropout_key_of, dropped
from bert_jax.models.execution import Execution
from bert_jax.models.kernels import MASK_VALUE, AttentionCall
from bert_jax.models.kernels.table import select_kernel
from bert_jax.models.layers import dense
from bert_jax.models.packed_rows import AttentionContext, Tokens


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    context: AttentionContext,
    rate: float,
    dropout_key: jax.Array,
) -> jax.Array:
    """softmax(Q Kᵀ / sqrt(H)) V (equation 1), with dropout on the softmax.

    Args:
        query: Q, [B, N, T, H].
        key: K, [B, N, S, H].
        value: V, [B, N, S, H].
        context: decides which keys each query sees; a query that sees none attends to all equally.
        rate: dropout rate; each example, head and position has its own mask, as in the original.
        dropout_key: uint32 [2], key of the dropout mask.

    Returns:
        [B, N, T, H].
    """
    scores = jnp.einsum("BNTH,BNSH->BNTS", query, key) / math.sqrt(query.shape[-1])
    scores = jnp.where(context.visible, scores, MASK_VALUE)
    weights = jax.nn.softmax(scores, axis=-1)
    weights = dropped(rate, weights, dropout_key, context.dropout_indices)
    return jnp.einsum("BNTS,BNSH->BNTH", weights, value)


class Projections(NamedTuple):
    """The inputs of attention, of each head: Q, K and V, [B, N, T, H] each."""

    query: jax.Array
    key: jax.Array
    value: jax.Array


class SelfAttention(nn.Module):
    """N heads that attend to all tokens, and the projection of their outputs back to D.

    In a bottleneck, queries and keys are those of a narrow input of width D, and so is the output;
    the values are those of another input.
    """

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
        valued: jax.Array | None = None,
    ) -> tuple[jax.Array, Projections]:
        """[B, T, D] → [B, T, D], and Q, K and V.

        Args:
            hidden: input of queries and keys.
            tokens: which tokens see each other.
            deterministic: False for training, with dropout.
            output_attentions: whether the weights are requested, see `layer_outputs`; some
                kernels do not compute the same ones.
            valued: input of the values; None: `hidden`.
        """
        config, execution = self.config, self.execution
        heads = (config.num_attention_heads, config.head_dim)
        # Heads before tokens: a batch of matrix products is fast on every platform.
        projections = Projections(
            *(
                dense(config, execution, heads, name)(inputs).swapaxes(1, 2)  # BNTH
                for name, inputs in (
                    ("query", hidden),
                    ("key", hidden),
                    ("value", hidden if valued is None else valued),
                )
            )
        )

        rate = 0.0 if deterministic else config.attention_probs_dropout_prob
        call = AttentionCall(
            length=hidden.shape[1],
            head_dim=config.head_dim,
            dtype=execution.dtype,
            dropout_rate=rate,
            output_attentions=output_attentions,
            packed=tokens.segment_ids.query.shape[1] > 1,
        )
        platform = execution.platform or jax.default_backend()
        kernel = select_kernel(execution.attention, platform, call)
        context = AttentionContext.from_tokens(tokens, config.num_attention_heads)
        dropout_key = dropout_key_of(self) if rate else jnp.zeros(2, jnp.uint32)
        attended = kernel.function(*projections, context, rate, dropout_key)
        attended = attended.swapaxes(1, 2)  # BTNH
        output = dense(config, execution, hidden.shape[-1], "output", axes=2)(attended)
        return output, projections
