"""Encodes chunks in worker processes and gives the results back in order."""

import collections
import dataclasses
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from bert_jax.data.pretraining.preparation.chunks import Chunk
from bert_jax.data.pretraining.preparation.encoding import EncodedSplit, encode_chunk
from bert_jax.errors import UserError
from bert_jax.tokenization.interface import Tokenizer

# With fewer chunks than this, starting processes takes longer than the work.
_FEWEST_CHUNKS = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Encoder:
    """What a worker needs besides the chunk.

    Attributes:
        tokenizer: directory of the tokenizer.
        mode: see `split_sentences`.
        language: see `split_sentences`.
    """

    tokenizer: Path
    mode: str
    language: str


Result = tuple[Chunk, dict[str, EncodedSplit]]


def encode_in_order(chunks: Iterator[Chunk], encoder: Encoder, workers: int) -> Iterator[Result]:
    """Encodes chunks; results come in the order of the chunks.

    Args:
        chunks: read as they are needed, two and a few more for each worker ahead.
        encoder: how they are encoded.
        workers: number of processes; with 1, and for very little text, the work is done in this
            process (where the tokenizers library may use several threads).

    Raises:
        UserError: a worker was killed.
    """
    first = list(itertools.islice(chunks, _FEWEST_CHUNKS))
    chunks = itertools.chain(first, chunks)
    if workers == 1 or len(first) < _FEWEST_CHUNKS:
        tokenizer = _load(encoder)
        for chunk in chunks:
            yield chunk, encode_chunk(chunk, tokenizer, encoder.mode, encoder.language)
        return
    pool = ProcessPoolExecutor(
        workers,
        # Forking would copy the threads' locks of libraries in whatever state they are.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(encoder,),
    )
    pending: collections.deque[tuple[Chunk, Future[dict[str, EncodedSplit]]]] = collections.deque()
    try:
        for chunk in chunks:
            pending.append((chunk, pool.submit(_work, chunk)))
            if len(pending) > 2 * workers:
                yield _take(pending)
        while pending:
            yield _take(pending)
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed (out of memory?); run the same command to go on, "
            f"with fewer than {workers} workers if it happens again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _take(
    pending: collections.deque[tuple[Chunk, Future[dict[str, EncodedSplit]]]],
) -> Result:
    chunk, future = pending.popleft()
    return chunk, future.result()


def _load(encoder: Encoder) -> Tokenizer:
    from bert_jax.tokenization import load_tokenizer

    return load_tokenizer(encoder.tokenizer)


@dataclasses.dataclass
class _Worker:
    """State of this process if it is a worker: the tokenizer is loaded once."""

    encoder: Encoder | None = None
    tokenizer: Tokenizer | None = None


_worker = _Worker()


def _start_worker(encoder: Encoder) -> None:
    # One process per core is enough; threads of the tokenizers library would only get in the way.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _worker.encoder, _worker.tokenizer = encoder, _load(encoder)


def _exit_with_parent() -> None:
    """A parent that is killed cannot stop its workers, and they would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(chunk: Chunk) -> dict[str, EncodedSplit]:
    assert _worker.encoder is not None
    assert _worker.tokenizer is not None
    return encode_chunk(chunk, _worker.tokenizer, _worker.encoder.mode, _worker.encoder.language)
