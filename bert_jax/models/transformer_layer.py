"""A layer (Vaswani et al., 2017, section 3.1), and which values layers return."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.activations import ACTIVATIONS, GATED_ACTIVATIONS
from bert_jax.models.attention import Attention, AttentionOutput
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import DecoderCache, EncoderMemory, KeyValueCache, MemoryKeyValues
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.global_tokens import GlobalHeads, GlobalProjections
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
        query, key, value: Q [B, N, T, H], K and V [B, N, S, H] of its heads.
        cross_query, cross_key: Q and K of its cross-attention.
        cache: the layer's cache with the T tokens.
        bias: of the scores, broadcast to [B, N, T, S].
    """

    hidden: jax.Array | None = None
    query: jax.Array | None = None
    key: jax.Array | None = None
    value: jax.Array | None = None
    cross_query: jax.Array | None = None
    cross_key: jax.Array | None = None
    cache: DecoderCache | None = None
    bias: jax.Array | None = None

    @classmethod
    def needed(
        cls,
        requested: RequestedOutputs,
        hidden: jax.Array,
        attention: AttentionOutput,
        cross: AttentionOutput | None = None,
    ) -> "LayerValues":
        """The values of a layer that the requested outputs, or a cache, need."""
        cache = None
        if attention.cache is not None:
            memory = MemoryKeyValues(cross.inputs.key, cross.inputs.value) if cross else None
            cache = DecoderCache(attention.cache, memory)
        return cls(
            hidden if requested.hidden_states else None,
            attention.inputs.query if requested.attentions else None,
            attention.inputs.key if requested.attentions else None,
            attention.inputs.value if requested.value_relations else None,
            cross.inputs.query if cross and requested.attentions else None,
            cross.inputs.key if cross and requested.attentions else None,
            cache,
            attention.inputs.bias if requested.attentions else None,
        )


class TransformerLayer(nn.Module):
    """Attention, cross-attention where the config has it, and feed-forward.

    Each with a residual sum: norm(x + dropout(f(x))), or with `norm_first` x + dropout(f(norm(x))).
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
        """[B, T, D] → [B, T, D], and values that `nn.scan` stacks to [L, ...].

        `number` is the number of the layer, from 0, int32 [].
        """
        config, execution = self.config, self.execution
        # The scope is named after the class, and so are the random keys derived from it.
        dropout = Dropout(config.hidden_dropout_prob)

        def attend(
            read: jax.Array,
            name: str,
            memory: EncoderMemory | None,
            known: KeyValueCache | MemoryKeyValues | None,
            number: jax.Array | None = None,
            global_heads: GlobalHeads | None = None,
        ) -> AttentionOutput:
            return Attention(config, execution, name=name)(
                read,
                tokens,
                deterministic=deterministic,
                output_attentions=requested.attentions,
                memory=memory,
                cache=known,
                number=number,
                global_heads=global_heads,
            )

        def add(hidden: jax.Array, update: jax.Array, norm_name: str, drops: bool) -> jax.Array:
            if drops:
                update = dropout(update, tokens.indices, deterministic=deterministic)
            hidden = hidden + update
            return hidden if config.norm_first else norm(config, execution, norm_name)(hidden)

        def read(hidden: jax.Array, norm_name: str) -> jax.Array:
            return norm(config, execution, norm_name)(hidden) if config.norm_first else hidden

        earlier = None if cache is None else cache.tokens
        source = read(hidden, "attention_norm")
        if not config.has_first_norm:
            source = jnp.where(number == 0, hidden, source)
        global_heads = None
        has_projections = config.attention_window is not None
        if has_projections and (tokens.global_tokens is not None or self.is_initializing()):
            project = GlobalProjections(config, execution, name="global_attention")
            global_heads = project(source)
        attention = attend(source, "attention", None, earlier, number, global_heads)
        hidden = add(hidden, attention.hidden, "attention_norm", config.attention_output_dropout)

        cross = None
        if config.has_cross_attention:
            known = cache.memory if cache is not None else None
            source = read(hidden, "cross_attention_norm")
            cross = attend(source, "cross_attention", tokens.memory, known)
            hidden = add(hidden, cross.hidden, "cross_attention_norm", True)

        outer = self._feed_forward(read(hidden, "output_norm"), tokens, deterministic)
        hidden = add(hidden, outer, "output_norm", config.feed_forward_dropout)
        if tokens.convolution is not None:
            with_it = tokens.convolution.added_to(hidden, tokens.is_visible)
            hidden = jnp.where(number == 0, with_it, hidden)
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        return hidden, LayerValues.needed(requested, hidden, attention, cross)

    def _feed_forward(self, hidden: jax.Array, tokens: Tokens, deterministic: bool) -> jax.Array:
        """[B, T, D] → [B, T, D]."""
        config = self.config

        def project(features: int, name: str, source: jax.Array) -> jax.Array:
            has_bias = config.has_biases and (name == "output" or config.has_inner_biases)
            return dense(config, self.execution, features, name, use_bias=has_bias)(source)

        width, activation = config.intermediate_size, config.hidden_act
        activate = (ACTIVATIONS | GATED_ACTIVATIONS)[activation]
        if config.is_gated:
            gate = activate(project(width, "gate", hidden))  # BTF
            inner = gate * project(width, "gated_intermediate", hidden)
        else:
            inner = activate(project(width, "intermediate", hidden))
        if config.activation_dropout:
            drop = Dropout(config.activation_dropout, name="activation_dropout")
            inner = drop(inner, tokens.indices, deterministic=deterministic)
        return project(config.hidden_size, "output", inner)
