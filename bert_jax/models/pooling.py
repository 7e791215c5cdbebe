"""Pooling of token vectors to a text vector, as in sentence-transformers.

Source: Sentence-BERT (Reimers and Gurevych, 2019, https://arxiv.org/abs/1908.10084), section 3, and
sentence-transformers 6, sentence_transformer/modules/pooling.py.

Each function takes the token vectors [B, T, D] and a mask, bool [B, T], False for padding and for
tokens that do not count, such as a prompt's; it returns [B, D].
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

Pool = Callable[[jax.Array, jax.Array], jax.Array]

POOLER = "pooler"
"""The output of the encoder's own pooler, which is no function of the last token vectors alone."""


def first_token(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The vector of the first token that counts, which is [CLS] without a prompt to leave out."""
    return _at(hidden, mask.argmax(axis=1))


def last_token(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The vector of the last token that counts; zeros for a row without tokens."""
    last = hidden.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    return jnp.where(mask.any(axis=1, keepdims=True), _at(hidden, last), 0)


def masked_mean(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the tokens, including [CLS] and [SEP]; zeros for a row without tokens."""
    return _sum(hidden, mask) / _total(mask)


def mean_of_root_length(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The sum over the tokens, divided by the root of their number."""
    return _sum(hidden, mask) / jnp.sqrt(_total(mask))


def weighted_mean(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the tokens, weighted with their positions 1, 2, … in the row."""
    weights = mask * jnp.arange(1, mask.shape[1] + 1)  # BT
    return _sum(hidden, weights) / _total(weights)


def masked_max(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The maximum of each dimension; the lowest finite number for a row without tokens."""
    least = jnp.finfo(hidden.dtype).min
    return jnp.where(mask[:, :, None], hidden, least).max(axis=1)


def _at(hidden: jax.Array, positions: jax.Array) -> jax.Array:
    return jnp.take_along_axis(hidden, positions[:, None, None], axis=1)[:, 0]


def _sum(hidden: jax.Array, weights: jax.Array) -> jax.Array:
    return (hidden * weights[:, :, None].astype(hidden.dtype)).sum(axis=1)


def _total(weights: jax.Array) -> jax.Array:
    return jnp.maximum(weights.sum(axis=1, keepdims=True), 1)


OF_TOKENS: dict[str, Pool] = {
    "cls": first_token,
    "max": masked_max,
    "mean": masked_mean,
    "mean_sqrt_len_tokens": mean_of_root_length,
    "weightedmean": weighted_mean,
    "lasttoken": last_token,
}
"""The poolings without parameters, by the names of sentence-transformers, in the order in which its
older files concatenate several of them."""

POOLINGS = (*OF_TOKENS, POOLER)
