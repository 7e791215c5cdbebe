"""What an encoder returns beside its last layer, and what its layers return for it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.attention import AttentionOutput
from bert_jax.models.attention_inputs import AttentionInputs, AttentionMask
from bert_jax.models.kernels.xla import attention_weights
from bert_jax.models.key_value_cache import KeyValueCache


class EncoderOutputs(NamedTuple):
    """What an encoder returns beside its last layer.

    Attributes:
        output_hidden_states: whether the hidden states of all layers.
        output_attentions: whether the attention weights of all layers.
        output_value_relations: whether the value relations of all layers.
        attention_layers: the layers, from 1, whose attention weights and value relations are
            returned, where requested; None: all.
    """

    output_hidden_states: bool = False
    output_attentions: bool = False
    output_value_relations: bool = False
    attention_layers: tuple[int, ...] | None = None

    @property
    def are_requested(self) -> bool:
        """Whether anything is returned beside the last layer."""
        return any(self._replace(attention_layers=None))


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
        cls, outputs: EncoderOutputs, hidden: jax.Array, attention: AttentionOutput
    ) -> "LayerValues":
        """Those that the requested values need."""
        weights, relations = outputs.output_attentions, outputs.output_value_relations
        return cls(
            hidden if outputs.output_hidden_states else None,
            attention.inputs.query if weights else None,
            attention.inputs.key if weights else None,
            attention.inputs.value if relations else None,
            attention.cache,
        )


class Intermediates(NamedTuple):
    """The requested values of the layers: the last three attributes of an `EncoderOutput`."""

    hidden_states: jax.Array | None
    attentions: jax.Array | None
    value_relations: jax.Array | None

    @classmethod
    def of(
        cls,
        outputs: EncoderOutputs,
        embedded: jax.Array,
        values: LayerValues,
        mask: AttentionMask,
        scale: float,
    ) -> "Intermediates":
        """The requested values from the values of all layers, [L, ...].

        Attention weights are computed here and not in the layers, which are a loop: so the weights
        of other layers than the requested ones are never computed.

        Args:
            outputs: what is requested.
            embedded: input of the first layer.
            values: values of all layers.
            mask: see `AttentionInputs`, like `scale`.
            scale: factor of the scores.
        """
        states = values.hidden
        if states is not None:
            states = jnp.concatenate([embedded[None], states])
        layers: Any = slice(None)
        if outputs.attention_layers is not None:
            layers = np.array(outputs.attention_layers) - 1

        def weights(query: jax.Array | None, key: jax.Array | None) -> jax.Array | None:
            if query is None or key is None:
                return None
            query, key = query[layers], key[layers]
            return attention_weights(AttentionInputs(query, key, key, mask, scale))

        return cls(states, weights(values.query, values.key), weights(values.value, values.value))
