"""Short rows of a batch computed together in fewer rows, and brought back.

This is packing for the encoder alone: what stands before it and behind it sees the batch as it
came. Pre-training packs its data instead, see `data.packing`.

No text sees another, and dropout is that of the token wherever it is computed: the results are
those of the batch itself, but for padding, whose vectors come back as zeros.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.segments import SegmentIds, Tokens


class SharedRows(NamedTuple):
    """Where the tokens of a batch [B, T] stand in R rows of S slots, and back.

    Attributes:
        slots: int32 [R, S], the number b · T + t of the token that stands there; -1: none.
        unpack_indices: int32 [B, T], the number r · S + s of the slot of each token; -1 for padding.
    """

    slots: jax.Array
    unpack_indices: jax.Array

    def gather(self, hidden: jax.Array) -> jax.Array:
        """[B, T, D] → [R, S, D]."""
        return _moved(hidden, self.slots, self.unpack_indices)

    def spread(self, hidden: jax.Array) -> jax.Array:
        """[R, S, D] → [B, T, D]."""
        return _moved(hidden, self.unpack_indices, self.slots)

    def tokens(self) -> Tokens:
        """For the layers: the texts of a row are its segments."""
        length = self.unpack_indices.shape[1]
        texts = jnp.where(self.slots < 0, 0, self.slots // length + 1)
        return Tokens(SegmentIds(texts, texts), self.slots, self.slots % length)


@jax.custom_vjp
def _moved(values: jax.Array, there: jax.Array, back: jax.Array) -> jax.Array:
    """What stands at the numbers `there`; zeros for -1.

    No token is at two places, so the gradient is moved back in the same way: JAX alone would add it
    up token by token.
    """
    flat = values.reshape(-1, values.shape[-1])
    return jnp.where((there >= 0)[..., None], flat[there], 0)


def _forward(values: jax.Array, there: jax.Array, back: jax.Array) -> tuple[jax.Array, Any]:
    return _moved(values, there, back), (there, back)


def _backward(saved: Any, cotangent: jax.Array) -> tuple[jax.Array, None, None]:
    there, back = saved
    return _moved(cotangent, back, there), None, None


_moved.defvjp(_forward, _backward)
