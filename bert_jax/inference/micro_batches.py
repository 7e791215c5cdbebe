"""Items of a source that keeps us waiting, such as a pipe: what has come is answered first."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# Where so many items take longer to come, they are few, and what has come is computed.
_MANY = 256
_SECONDS = 0.1


def bursts(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """The items in iterators, each of which begins with a wait and has no other that is long.

    As long as items come fast, they are all in one. They are read in a thread of its own, a little
    ahead. Each iterator is to be used up before the next one; the last one may be empty.

    Args:
        items: read once; what they raise is raised where their item would be.
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

    def burst() -> Iterator[Item]:
        nonlocal ended
        found, count, left = arrived.get(), 0, _SECONDS
        while not isinstance(found, BaseException) and found:
            yield from found
            count += 1
            left = _SECONDS if count % _MANY == 0 else left
            asked = time.monotonic()
            try:
                found = arrived.get(timeout=max(0.0, left))
            except queue.Empty:
                return
            left -= time.monotonic() - asked
        ended = True
        if isinstance(found, BaseException):
            raise found

    # Nobody waits for it: who stops, does not ask whether the source has an end.
    threading.Thread(target=read, daemon=True).start()
    while not ended:
        yield burst()
