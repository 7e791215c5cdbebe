"""Which tokens look at which."""

from typing import NamedTuple

import jax


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
