"""What a search needs of a decoder, and what it returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

NO_TOKEN = -1  # where a prompt is shorter than others of its batch


class DecoderFunctions(NamedTuple):
    """A decoder as functions of its cache, any pytree of arrays with R rows each.

    Attributes:
        step: (cache, tokens int32 [R]) → logits of the token after these, float32 [R, V], and the
            cache with these tokens.
        reorder: (cache, rows int32 [R]) → cache with these rows, which may be more or fewer; rows
            of a prompt replace rows of the same prompt, see `rows.rows_of_prompts`.
        grow: (cache, count) → cache with room for `count` new tokens after the prompts, not
            fewer than before. By default a cache has room for all from the start.
    """

    step: Callable[[Any, jax.Array], tuple[jax.Array, Any]]
    reorder: Callable[[Any, jax.Array], Any]
    grow: Callable[[Any, int], Any] = lambda cache, count: cache


class Generated(NamedTuple):
    """R sequences for each of B prompts, the best first.

    A beam search may find fewer than R: the length of a missing one is 0, its score −inf.

    Attributes:
        token_ids: int32 [B, R, M], the new tokens with the end token, then the pad token.
        lengths: int32 [B, R], number of new tokens with the end token.
        scores: float32 [B, R], see `SearchOptions`.
    """

    token_ids: jax.Array
    lengths: jax.Array
    scores: jax.Array
