"""From the vectors of the tokens to one vector of the text."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

POOLINGS = ("cls", "pooler", "mean", "max")


def cls(hidden: jax.Array) -> jax.Array:
    """The vector of [CLS]: [B, T, D] → [B, D]."""
    return hidden[:, 0]


def masked_mean(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the tokens, [CLS] and [SEP] among them (Sentence-BERT, section 3).

    Args:
        hidden: [B, T, D].
        mask: bool [B, T], False for padding.

    Returns:
        [B, D]; zeros for a row without tokens.
    """
    weights = mask[:, :, None].astype(hidden.dtype)
    total = (hidden * weights).sum(axis=1)
    return total / jnp.maximum(weights.sum(axis=1), 1)


def masked_max(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The greatest value of each of the D dimensions over the tokens.

    Args:
        hidden: [B, T, D].
        mask: bool [B, T], False for padding.

    Returns:
        [B, D]; the least finite number for a row without tokens.
    """
    least = jnp.finfo(hidden.dtype).min
    return jnp.where(mask[:, :, None], hidden, least).max(axis=1)


OF_TOKENS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "cls": lambda hidden, mask: cls(hidden),
    "mean": masked_mean,
    "max": masked_max,
}
"""The poolings without parameters of their own: [B, T, D] and bool [B, T] → [B, D]."""
