"""Streams of examples: in bursts as they arrive, with a progress bar."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

from bert_jax.inference.engine import Advance
from bert_jax.process import new_bar

Item = TypeVar("Item")

# A burst ends when the waits for this many items add up to more than this time.
_TIMED_ITEMS = 256
_MAX_WAIT_SECONDS = 0.1


def bursts(items: Iterable[Item]) -> Iterator[Iterator[Item]]:
    """Splits a stream into iterators; only the first item of each may be long in coming.

    As long as items arrive quickly, they share an iterator. A thread reads a few items ahead. Each
    iterator must be used up before the next one; the last one may be empty.

    Args:
        items: source, read once; its error is raised in place of the next item.
    """
    # An item, or () at the end.
    arrived: queue.Queue[tuple[Item, ...] | BaseException] = queue.Queue(_TIMED_ITEMS)
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
        following, count, left = arrived.get(), 0, _MAX_WAIT_SECONDS
        while not isinstance(following, BaseException) and following:
            yield from following
            count += 1
            left = _MAX_WAIT_SECONDS if count % _TIMED_ITEMS == 0 else left
            begun = time.monotonic()
            try:
                following = arrived.get(timeout=max(0.0, left))
            except queue.Empty:
                return
            left -= time.monotonic() - begun
        ended = True
        if isinstance(following, BaseException):
            raise following

    # A daemon thread: the end of the program does not wait for a source that may have no end.
    threading.Thread(target=read, daemon=True).start()
    while not ended:
        yield burst()


@contextlib.contextmanager
def progress_bar(
    total: Callable[[], int | None], *, enabled: bool, initial: int = 0
) -> Iterator[Advance]:
    """A bar on stderr: examples done, their rate, and the time left if the total is known.

    Nothing is shown before the first predictions, so that an earlier error is the only output.

    Args:
        total: returns the number of examples, or None if unknown; called after each batch.
        enabled: whether anything is shown.
        initial: number of examples that an earlier call has done.
    """
    begun = time.time()
    bar: tqdm | None = None

    def advance(count: int) -> None:
        nonlocal bar
        if bar is None:
            bar = new_bar("example", enabled=enabled, initial=initial)
            bar.start_t = begun
        bar.total = total()
        bar.update(count)

    try:
        yield advance
    except BaseException:
        if bar is not None:
            bar.leave = False
        raise
    finally:
        if bar is not None:
            bar.close()
