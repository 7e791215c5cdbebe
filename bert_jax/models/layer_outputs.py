"""What an encoder returns beside its last layer, and what its layers return for it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.attention import Projections
from bert_jax.models.kernels.xla import attention_weights
from bert_jax.models.packed_rows import AttentionContext


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
    """

    hidden: jax.Array | None
    query: jax.Array | None
    key: jax.Array | None
    value: jax.Array | None

    @classmethod
    def needed(
        cls, outputs: EncoderOutputs, hidden: jax.Array, projections: Projections
    ) -> "LayerValues":
        """Those that the requested values need."""
        weights, relations = outputs.output_attentions, outputs.output_value_relations
        return cls(
            hidden if outputs.output_hidden_states else None,
            projections.query if weights else None,
            projections.key if weights else None,
            projections.value if relations else None,
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
        context: AttentionContext,
    ) -> "Intermediates":
        """Those of the values of all layers, [L, ...]; `embedded` is the input of the first one.

        Attention weights are computed here and not in the layers, which are a loop: so those of
        other layers than the requested ones are never computed.
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
            return attention_weights(query[layers], key[layers], context)

        return cls(states, weights(values.query, values.key), weights(values.value, values.value))
