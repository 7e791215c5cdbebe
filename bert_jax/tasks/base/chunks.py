"""A data set through an encoder, a part of it at a time."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Rows = TypeVar("Rows")

# Enough for all threads of a tokenizer; of these many the encodings are in memory at once.
_CHUNK = 2000


def encoded(
    encode: Callable[[Sequence[Item]], Iterable[Rows]],
    items: Iterable[Item],
    check: Callable[[Item, int], None] | None = None,
) -> Iterator[Rows]:
    """What `encode` makes of each item, in order.

    An encoding takes some hundred bytes a token, a row of `data.labelled.sequences.Sequences` five:
    of a large data set the encodings must not all be there at once.

    Args:
        encode: from several items to as many results.
        items: read once, a chunk at a time.
        check: called with each item and its number before it is encoded.
    """
    remaining = iter(items) if check is None else _checked(items, check)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        yield from encode(chunk)


def _checked(items: Iterable[Item], check: Callable[[Item, int], None]) -> Iterator[Item]:
    for index, item in enumerate(items):
        check(item, index)
        yield item
