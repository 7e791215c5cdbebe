"""What layers know of tokens besides their vectors: who sees whom, and which token it is.

A segment is here what sees itself alone: a text in a row of several, or all of a row but its
padding. The paper's segments, the sentences A and B of one text, are `token_type_ids`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class SegmentIds(NamedTuple):
    """Who looks at whom: a query sees the keys that have its number.

    So the [T, S] table of who sees whom is never stored; it arises where scores are computed. Fused
    attention kernels take it in this form, too.

    Attributes:
        query: int32 [B, T], or [B, 1] where all queries of a row have the same number.
        key: int32 [B, S].
    """

    query: jax.Array
    key: jax.Array


class Tokens(NamedTuple):
    """The tokens of a batch as the layers get them.

    Attributes:
        segments: who sees whom.
        numbers: int32 [B, T], a number of its own for each token of the batch: dropout draws by it.
        places: int32 [B, T], where a token stands in its row of the batch.
    """

    segments: SegmentIds
    numbers: jax.Array
    places: jax.Array

    @classmethod
    def of(cls, segments: SegmentIds) -> "Tokens":
        """Tokens that are computed where they stand in the batch."""
        rows, length = segments.key.shape
        numbers = jnp.arange(rows * length, dtype=jnp.int32).reshape(rows, length)
        return cls(segments, numbers, numbers % length)
