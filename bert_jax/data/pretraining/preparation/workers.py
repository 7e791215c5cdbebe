"""Encodes the batches of shards in processes of this machine."""

import collections
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from tqdm import tqdm

from bert_jax.data.pretraining.preparation.shards import (
    EncodingWork,
    Shard,
    TextBatch,
    encode_batch,
    read_shard,
)
from bert_jax.errors import UserError
from bert_jax.files import check_locks

# With fewer batches than this, starting processes takes longer than the work.
_FEWEST_BATCHES = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def encode_locally(
    shards: Sequence[Shard], work: EncodingWork, workers: int, *, progress: bool
) -> None:
    """Encodes shards, see `shards.EncodeShards`.

    Args:
        shards: the shards.
        work: see `EncodingWork`.
        workers: number of processes; with 1, and for very little text, the work is done in this
            process (where the tokenizers library may use several threads).
        progress: whether a progress bar is shown on stderr.

    Raises:
        UserError: a worker was killed, or text cannot be read.
    """
    batches: Iterable[TextBatch] = (batch for shard in shards for batch in read_shard(shard, work))
    size = shards[-1].position + shards[-1].text.size
    with tqdm(total=size, desc="prepare", unit="B", unit_scale=True, disable=not progress) as bar:
        begun, tokens = time.monotonic(), 0
        for batch, encoded in _encoded(batches, work, workers):
            check_locks()
            tokens += encoded
            rate = tokens / max(time.monotonic() - begun, 1e-3)
            bar.set_postfix_str(f"{rate / 1e6:.2f} M tokens/s", refresh=False)
            bar.update(batch.position - bar.n)


def _encoded(
    batches: Iterable[TextBatch], work: EncodingWork, workers: int
) -> Iterator[tuple[TextBatch, int]]:
    """Batches in their order, read about two per worker ahead, and their numbers of tokens."""
    batches = iter(batches)
    first = list(itertools.islice(batches, _FEWEST_BATCHES))
    batches = itertools.chain(first, batches)
    if workers == 1 or len(first) < _FEWEST_BATCHES:
        for batch in batches:
            yield batch, encode_batch(batch, work)
        return
    # Forking would copy locked locks of library threads.
    context = multiprocessing.get_context("spawn")
    work = dataclasses.replace(work, done=frozenset())  # it is sent with each batch
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    pending: collections.deque[tuple[TextBatch, Future[int]]] = collections.deque()
    try:
        for batch in batches:
            with _signals_held_back():
                pending.append((batch, pool.submit(encode_batch, batch, work)))
            if len(pending) > 2 * workers:
                oldest, future = pending.popleft()
                yield oldest, future.result()
        for batch, future in pending:
            yield batch, future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed (out of memory?); run the same command to continue, "
            f"with fewer than {workers} workers if it happens again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Processes that are started within it get no signals before `_start_worker`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    # With one process per core, threads of the tokenizers library would only compete for cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Ends this process with its parent: workers of a killed parent would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
