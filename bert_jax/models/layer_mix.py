"""A trained mix of all layers, which a head reads in place of the last one.

Peters et al., 2018 (https://arxiv.org/abs/1802.05365), equation 1: with the hidden states h of the
embeddings and the layers 1 to L,

    scale · (softmax(weights)_0 h_0 + … + softmax(weights)_L h_L)

Source: allennlp, modules/scalar_mix.py. There, the layers of a mix with normalisation are
normalised over all tokens of a batch; here, so that a text has the same vectors in any batch, over
the tokens of each text, which is the same for one text alone.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.packed_rows import Tokens

MIXES = ("none", "softmax", "normalized")
"""No mix, the mix, and the mix of normalised layers."""

# Added to the variance, as in AllenNLP.
_EPSILON = 1e-13


class LayerMix(nn.Module):
    """The mix; at first it is the mean of all layers.

    Attributes:
        is_normalized: whether each layer is normalised over the values of all tokens of a text.
    """

    is_normalized: bool

    @nn.compact
    def __call__(self, states: jax.Array, tokens: Tokens) -> jax.Array:
        """[L + 1, B, T, D] → [B, T, D]."""
        weights = self.param("weights", nn.initializers.zeros, states.shape[:1])
        scale = self.param("scale", nn.initializers.ones, (1,))
        layers = states.astype(jnp.float32)
        if self.is_normalized:
            layers = jax.vmap(_normalized, (0, None))(layers, tokens.mask.key_ids)
        mixed = scale * jnp.einsum("L,LBTD->BTD", nn.softmax(weights), layers)
        return mixed.astype(states.dtype)


def _normalized(hidden: jax.Array, text_ids: jax.Array) -> jax.Array:
    """[B, T, D] minus the mean of a text, divided by its deviation; int32 [B, T] are its texts."""
    is_same = text_ids[:, :, None] == text_ids[:, None, :]  # BTT

    def mean(values: jax.Array) -> jax.Array:
        """Of the tokens of each one's text, [B, T, D] → [B, T, 1]."""
        sums = jnp.einsum("BTS,BS->BT", is_same, values.mean(axis=-1))
        return (sums / is_same.sum(axis=-1))[..., None]

    centred = hidden - mean(hidden)
    return centred * jax.lax.rsqrt(mean(jnp.square(centred)) + _EPSILON)
