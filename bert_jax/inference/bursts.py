"""Items of a source that keeps us waiting, such as a pipe: what has come is answered first."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# What comes within so long of a first item is computed with it.
_SECONDS = 0.1

# Items that are read before they are asked for.
_AHEAD = 256


def bursts(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """The items in iterators, each of which begins with a wait and has no other that is long.

    The items are read in a thread of its own. Each iterator is to be used up before the next one;
    the last one may be empty.

    Args:
        items: read once; what they raise is raised where their item would be.
    """
    # An item, or nothing at the end.
    arrived: queue.Queue[tuple[Item, ...] | BaseException] = queue.Queue(_AHEAD)
    ended = False

    def read() -> None:
        try:
            for item in items:
                arrived.put((item,))
            arrived.put(())
        except BaseException as error:
            arrived.put(error)

    def burst() -> Iterator[Item]:
        nonlocal ended
        found, until = arrived.get(), time.monotonic() + _SECONDS
        while not isinstance(found, BaseException) and found:
            yield from found
            try:
                found = arrived.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return
        ended = True
        if isinstance(found, BaseException):
            raise found

    # Nobody waits for it: who stops, does not ask whether the source has an end.
    threading.Thread(target=read, daemon=True).start()
    while not ended:
        yield burst()
