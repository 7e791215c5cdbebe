"""A layer of the encoder (Vaswani et al., 2017, section 3.1), and which values layers return."""

from typing import NamedTuple

import flax.linen as nn
import jax

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.attention import Attention, AttentionOutput
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import KeyValueCache
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.layers import HIDDEN_AXES, dense, norm
from bert_jax.models.packed_rows import Tokens


class RequestedOutputs(NamedTuple):
    """Which values an encoder returns beside its last layer, see `EncoderOutput`.

    Attributes:
        hidden_states: whether the hidden states of all layers.
        attentions: whether attention weights.
        value_relations: whether value relations.
        attention_layers: numbers, from 1, of the layers with attention weights and value relations;
            None: all.
    """

    hidden_states: bool = False
    attentions: bool = False
    value_relations: bool = False
    attention_layers: tuple[int, ...] | None = None

    @property
    def only_last(self) -> bool:
        """Whether nothing is returned beside the last layer."""
        return not (self.hidden_states or self.attentions or self.value_relations)


class LayerValues(NamedTuple):
    """Values of a layer from which the requested ones are computed; None where none needs them.

    Attributes:
        hidden: output of the layer, [B, T, D].
        query, key, value: Q, K and V of its heads, [B, N, T, H].
        cache: the layer's cache with the T tokens.
    """

    hidden: jax.Array | None
    query: jax.Array | None
    key: jax.Array | None
    value: jax.Array | None
    cache: KeyValueCache | None

    @classmethod
    def needed(
        cls, requested: RequestedOutputs, hidden: jax.Array, attention: AttentionOutput
    ) -> "LayerValues":
        """The values of a layer that the requested outputs need."""
        return cls(
            hidden if requested.hidden_states else None,
            attention.inputs.query if requested.attentions else None,
            attention.inputs.key if requested.attentions else None,
            attention.inputs.value if requested.value_relations else None,
            attention.cache,
        )


class TransformerLayer(nn.Module):
    """Attention, then feed-forward; each: sub-layer → dropout → residual sum → LayerNorm."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        cache: KeyValueCache | None,
        tokens: Tokens,
        deterministic: bool,
        requested: RequestedOutputs,
    ) -> tuple[jax.Array, LayerValues]:
        """[B, T, D] → [B, T, D], and values that `nn.scan` stacks to [L, ...]."""
        config, execution = self.config, self.execution
        # The scope is named after the class, and so are the random keys derived from it.
        dropout = Dropout(config.hidden_dropout_prob)

        attention = Attention(config, execution, name="attention")(
            hidden,
            tokens,
            deterministic=deterministic,
            output_attentions=requested.attentions,
            cache=cache,
        )
        attended = attention.hidden
        if config.attention_output_dropout:
            attended = dropout(attended, tokens.indices, deterministic=deterministic)
        hidden = norm(config, execution, "attention_norm")(hidden + attended)

        inner = dense(config, execution, config.intermediate_size, "intermediate")(hidden)  # BTF
        inner = ACTIVATIONS[config.hidden_act](inner)
        outer = dense(config, execution, config.hidden_size, "output")(inner)  # BTD
        if config.feed_forward_dropout:
            outer = dropout(outer, tokens.indices, deterministic=deterministic)
        hidden = norm(config, execution, "output_norm")(hidden + outer)
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        return hidden, LayerValues.needed(requested, hidden, attention)
