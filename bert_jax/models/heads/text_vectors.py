"""How a model makes one vector of a text: the pooling of its token vectors.

The description has the content of the files of sentence-transformers, see
`checkpoints.sentence_transformers`; fields and poolings have the names and the meaning of its
version 6. Source of the poolings: Sentence-BERT (Reimers and Gurevych, 2019,
https://arxiv.org/abs/1908.10084), section 3.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.errors import OptionError, require_one_of
from bert_jax.models.head import Head
from bert_jax.models.layers import gather_positions
from bert_jax.models.vectors import (
    TEXT_VECTORS,
    Module,
    StoredVectors,
    apply_modules,
)

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

POOLER = "pooler"
"""The pooling by the encoder's own pooler, which is no function of the token vectors alone."""


# Each pooling takes token vectors [B, T, D] and a mask, bool [B, T], False for padding and for a
# prompt that does not count, and returns [B, D].


def first_token(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The vector of the first token that counts, which is [CLS] without a prompt to leave out."""
    return gather_positions(hidden, mask.argmax(axis=1, keepdims=True))[:, 0]


def last_token(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The vector of the last token that counts; zeros for a row without tokens."""
    last = hidden.shape[1] - 1 - mask[:, ::-1].argmax(axis=1, keepdims=True)  # B1
    return jnp.where(mask.any(axis=1, keepdims=True), gather_positions(hidden, last)[:, 0], 0)


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


def _sum(hidden: jax.Array, weights: jax.Array) -> jax.Array:
    return (hidden * weights[:, :, None].astype(hidden.dtype)).sum(axis=1)


def _total(weights: jax.Array) -> jax.Array:
    return jnp.maximum(weights.sum(axis=1, keepdims=True), 1)


TOKEN_POOLINGS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "cls": first_token,
    "max": masked_max,
    "mean": masked_mean,
    "mean_sqrt_len_tokens": mean_of_root_length,
    "weightedmean": weighted_mean,
    "lasttoken": last_token,
}
"""The poolings without parameters, by the names of sentence-transformers, in the order in which its
older files concatenate several of them."""

POOLINGS = (*TOKEN_POOLINGS, POOLER)


@dataclasses.dataclass(frozen=True)
class TextVectors(StoredVectors):
    """How a model makes one vector of a text.

    Attributes:
        poolings: names of `POOLINGS`; the results are concatenated.
        similarity: one of `SIMILARITIES`, how two vectors are compared.
        truncate_dim: number of leading values of a vector that are kept; None: all.
    """

    method = "embed"

    poolings: tuple[str, ...] = ("mean",)
    similarity: str = "cosine"
    truncate_dim: int | None = None

    @property
    def pools_tokens(self) -> bool:
        """Whether the vectors are pooled from token vectors."""
        return POOLER not in self.poolings

    def input_width(self, hidden_size: int) -> int:
        return len(self.poolings) * hidden_size

    def width(self, hidden_size: int) -> int:
        width = super().width(hidden_size)
        return min(width, self.truncate_dim or width)

    def chosen(self, pooling: str | Sequence[str] | None, normalize: bool | None) -> "TextVectors":
        """The description with the pooling and normalisation that a caller names.

        Args:
            pooling: one of `POOLINGS`, or several, also as "cls,max"; None: unchanged.
            normalize: False leaves out a normalisation at the end; for True see `embed`.

        Raises:
            OptionError: the pooling is unknown, or none is named and the files of the model have an
                unsupported content.
        """
        if self.unsupported and pooling is None:
            rule = "name a pooling for the vectors of the encoder alone, or give another model"
            raise OptionError("pooling", None, rule, self.unsupported)
        vectors = TextVectors() if self.unsupported else self
        if pooling is not None:
            names = pooling.split(",") if isinstance(pooling, str) else pooling
            if len(names) > len(POOLINGS):
                problem = f"pooling has {len(names):,} names"
                raise OptionError("pooling", None, f"name at most {len(POOLINGS)}", problem)
            for name in names or ("",):
                require_one_of("pooling", name, POOLINGS)
            vectors = dataclasses.replace(vectors, poolings=tuple(names))
        if normalize is False and vectors.ends_in_normalize:
            vectors = dataclasses.replace(vectors, modules=vectors.modules[:-1])
        return vectors

    def pool(self, prompt_length: int = 0) -> "TextPooling":
        """The module that computes poolings and modules; see `TextPooling` for the argument."""
        return TextPooling(self.poolings, self.modules, prompt_length, self.truncate_dim)


class TextPooling(nn.Module):
    """Token vectors → text vectors.

    Attributes:
        poolings, modules, truncate_dim: see `TextVectors`.
        prompt_length: number of first tokens that do not count.
    """

    poolings: tuple[str, ...] = ("mean",)
    modules: tuple[Module, ...] = ()
    prompt_length: int = 0
    truncate_dim: int | None = None

    @nn.compact
    def __call__(self, hidden: jax.Array, mask: jax.Array, pooler_output: Any = None) -> jax.Array:
        """The vectors, float32 [B, X]; zeros for a row of padding.

        Args:
            hidden: [B, T, D], the last hidden states.
            mask: bool [B, T], False for padding.
            pooler_output: [B, D], for the pooling "pooler"; else None.
        """
        hidden, is_text = hidden.astype(jnp.float32), mask.any(axis=1, keepdims=True)
        if self.prompt_length:
            mask &= jnp.arange(mask.shape[1]) >= self.prompt_length
        parts = [
            pooler_output.astype(jnp.float32)
            if name == POOLER
            else TOKEN_POOLINGS[name](hidden, mask)
            for name in self.poolings
        ]
        vectors = apply_modules(self.modules, jnp.concatenate(parts, axis=-1))
        return jnp.where(is_text, vectors[:, : self.truncate_dim], 0)


HEAD = Head(axes=((rf"{TEXT_VECTORS}/\w+/(kernel|bias)", ()),))
