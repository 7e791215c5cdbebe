"""Items of a source that makes us wait, such as a pipe: what has come is computed at once."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# An iterator ends when so many items take longer than so long to come.
_MANY = 256
_SECONDS = 0.1


def micro_batches(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """The items in iterators, each of which may wait long for its first item only.

    As long as items come fast, they are all in one. A thread reads them a little ahead. Each
    iterator must be used up before the next one; the last one may be empty.

    Args:
        items: read once; an error of theirs is raised where their item would be.
    """
    # An item, or nothing at the end.
    arrived: queue.Queue[tuple[Item, ...] | BaseException] = queue.Queue(_MANY)
    ended = False

    def read() -> None:
        try:
            for item in items:
                arrived.put((item,))
            arrived.put(())
        except BaseException as error:
            arrived.put(error)

    def micro_batch() -> Iterator[Item]:
        nonlocal ended
        following, count, left = arrived.get(), 0, _SECONDS
        while not isinstance(following, BaseException) and following:
            yield from following
            count += 1
            left = _SECONDS if count % _MANY == 0 else left
            begun = time.monotonic()
            try:
                following = arrived.get(timeout=max(0.0, left))
            except queue.Empty:
                return
            left -= time.monotonic() - begun
        ended = True
        if isinstance(following, BaseException):
            raise following

    # A daemon: at the end of the program nobody waits for a source that may have no end.
    threading.Thread(target=read, daemon=True).start()
    while not ended:
        yield micro_batch()
