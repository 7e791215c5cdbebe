"""MobileBERT's layer (Sun et al., 2020, https://arxiv.org/abs/2004.02984, figure 1c)."""

import flax.linen as nn
import jax

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.attention import Attention
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import DecoderCache
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.layers import HIDDEN_AXES, dense, norm
from bert_jax.models.packed_rows import Tokens
from bert_jax.models.transformer_layer import LayerValues, RequestedOutputs


class BottleneckLayer(nn.Module):
    """Attention and several feed-forward blocks of a width smaller than D, between linear layers.

    Queries and keys share one linear layer on the input; the values are of the input itself. Only
    the last layer has dropout after it.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        tokens: Tokens,
        deterministic: bool,
        requested: RequestedOutputs,
        number: jax.Array,
        cache: DecoderCache | None,
    ) -> tuple[jax.Array, LayerValues]:
        """[B, T, D] → [B, T, D], and values that `nn.scan` stacks to [L, ...]."""
        config, execution = self.config, self.execution
        dropout = Dropout(config.hidden_dropout_prob)

        narrow = self._narrow(hidden, "bottleneck_input")
        attention = Attention(config, execution, name="attention")(
            self._narrow(hidden, "bottleneck_attention"),
            tokens,
            deterministic=deterministic,
            output_attentions=requested.attentions,
            cache=None if cache is None else cache.tokens,
            value_input=hidden,
        )
        narrow = norm(config, execution, "attention_norm")(narrow + attention.hidden)

        for block in range(config.num_feedforward_networks - 1):
            narrow = self._feed_forward(narrow, f"feed_forward_{block}_")
        narrow = self._feed_forward(narrow, "")

        outer = dense(config, execution, config.hidden_size, "output")(narrow)  # BTD
        outer = dropout(outer, tokens.indices, deterministic=deterministic)
        hidden = norm(config, execution, "output_norm")(hidden + outer)
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        return hidden, LayerValues.needed(requested, hidden, attention)

    def _narrow(self, hidden: jax.Array, name: str) -> jax.Array:
        narrow = dense(self.config, self.execution, self.config.attention_size, name)(hidden)
        return norm(self.config, self.execution, f"{name}_norm")(narrow)

    def _feed_forward(self, narrow: jax.Array, prefix: str) -> jax.Array:
        config, execution = self.config, self.execution
        inner = dense(config, execution, config.intermediate_size, f"{prefix}intermediate")(narrow)
        inner = ACTIVATIONS[config.hidden_act](inner)
        outer = dense(config, execution, config.attention_size, f"{prefix}contraction")(inner)
        return norm(config, execution, f"{prefix}contraction_norm")(narrow + outer)
