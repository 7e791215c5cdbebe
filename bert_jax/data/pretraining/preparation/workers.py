"""Encodes text batches in parallel: in processes of this machine, or in shards on any machines.

A shard is a set of batches of some files. Its worker reads the files from their start, which is
fast, and encodes only the batches of the shard, which is slow. The result is one file in a
directory that all machines can access.
"""

import collections
import contextlib
import dataclasses
import io
import itertools
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

from bert_jax.data.pretraining.corpus import SPLITS
from bert_jax.data.pretraining.preparation.encoding import (
    EncodedSplit,
    TextBatch,
    ValidationSplit,
    encode_batch,
    source_batches,
)
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import UserError
from bert_jax.files import as_path, open_binary, reachable, write_atomically
from bert_jax.tokenization import load_tokenizer
from bert_jax.tokenization.interface import Tokenizer

# With fewer batches than this, starting processes takes longer than the work.
_FEWEST_BATCHES = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclasses.dataclass(frozen=True, slots=True)
class BatchEncoder:
    """How text is encoded, the same for every batch.

    Attributes:
        tokenizer: directory of the tokenizer.
        mode: see `split_sentences`.
        language: see `split_sentences`.
    """

    tokenizer: Path
    mode: str
    language: str


Result = tuple[TextBatch, dict[str, EncodedSplit]]


def encode_in_order(
    batches: Iterator[TextBatch], encoder: BatchEncoder, workers: int
) -> Iterator[Result]:
    """Encodes batches; results come in their order.

    Args:
        batches: batches to encode, read on demand, about two per worker ahead.
        encoder: options of the encoding.
        workers: number of processes; with 1, and for very little text, the work is done in this
            process (where the tokenizers library may use several threads).

    Raises:
        UserError: a worker was killed.
    """
    first = list(itertools.islice(batches, _FEWEST_BATCHES))
    batches = itertools.chain(first, batches)
    if workers == 1 or len(first) < _FEWEST_BATCHES:
        tokenizer = load_tokenizer(encoder.tokenizer)
        for batch in batches:
            yield batch, encode_batch(batch, tokenizer, encoder.mode, encoder.language)
        return
    pool = ProcessPoolExecutor(
        workers,
        # Forking would copy locked locks of library threads.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(encoder,),
    )
    pending: collections.deque[tuple[TextBatch, Future[dict[str, EncodedSplit]]]] = (
        collections.deque()
    )
    try:
        for batch in batches:
            with _signals_held_back():
                pending.append((batch, pool.submit(_work, batch)))
            if len(pending) > 2 * workers:
                yield _take(pending)
        while pending:
            yield _take(pending)
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed (out of memory?); run the same command to continue, "
            f"with fewer than {workers} workers if it happens again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _take(
    pending: collections.deque[tuple[TextBatch, Future[dict[str, EncodedSplit]]]],
) -> Result:
    batch, future = pending.popleft()
    return batch, future.result()


@dataclasses.dataclass
class _Worker:
    """State of this process if it is a worker: the tokenizer is loaded once."""

    encoder: BatchEncoder | None = None
    tokenizer: Tokenizer | None = None


_worker = _Worker()


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Processes that are started within it get no signals before `_start_worker`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(encoder: BatchEncoder) -> None:
    # With one process per core, threads of the tokenizers library would only compete for cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and stops its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _worker.encoder, _worker.tokenizer = encoder, load_tokenizer(encoder.tokenizer)


def _exit_with_parent() -> None:
    """Ends this process with its parent: workers of a killed parent would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(batch: TextBatch) -> dict[str, EncodedSplit]:
    assert _worker.encoder is not None
    assert _worker.tokenizer is not None
    return encode_batch(batch, _worker.tokenizer, _worker.encoder.mode, _worker.encoder.language)


SHARD_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """A set of batches of some files of one source.

    Attributes:
        source: index of the source.
        text: the source, reduced to these files.
        position: total bytes of all sources before these files.
        turn: the batches `turn`, `turn + turns`, `turn + 2 turns`, … of these files.
        turns: number of shards that share these files.
        name: name of the result file.
    """

    source: int
    text: Source
    position: int
    turn: int
    turns: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShardWork:
    """The options for encoding shards, the same for each.

    Attributes:
        directory: directory of the results; a string, since it is sent to other machines.
        encoder: options of the encoding; its tokenizer is in a directory that all machines can
            access.
        validation: the split of documents.
        limit: maximum number of documents of each source.
        batch_characters: size of a batch in characters.
    """

    directory: str
    encoder: BatchEncoder
    validation: ValidationSplit
    limit: int | None
    batch_characters: int


def plan_shards(
    sources: Sequence[Source], limit: int | None, shard_bytes: int = SHARD_BYTES
) -> list[Shard]:
    """Divides sources into shards of about `shard_bytes`, in the order of the corpus.

    Small files are grouped. A large one is divided among several shards, and so is a source of
    which only the first documents are read.
    """
    shards: list[Shard] = []
    before = 0
    for index, source in enumerate(sources):
        sizes = source.piece_sizes if limit is None else [source.size]
        for start, stop in _groups(sizes, shard_bytes):
            size = sum(sizes[start:stop])
            turns = max(1, -(-size // shard_bytes))
            text = source if limit is not None else source.pieces(start, stop)
            for turn in range(turns):
                name = f"shard-{len(shards):06d}.npz"
                shards.append(Shard(index, text, before, turn, turns, name))
            before += size
    return shards


def encode_shard(shard: Shard, work: ShardWork) -> None:
    """Encodes a shard and writes its file, unless it exists."""
    path = as_path(work.directory) / shard.name
    with reachable(path):
        if path.exists():
            return
    encoder = work.encoder
    tokenizer = load_tokenizer(encoder.tokenizer)
    batches = source_batches(
        shard.text, work.validation, limit=work.limit, characters=work.batch_characters
    )
    positions: list[int] = []
    arrays: dict[str, np.ndarray] = {}
    for batch in itertools.islice(batches, shard.turn, None, shard.turns):
        for split, part in encode_batch(batch, tokenizer, encoder.mode, encoder.language).items():
            for field in dataclasses.fields(EncodedSplit):
                arrays[_key(len(positions), split, field.name)] = getattr(part, field.name)
        positions.append(batch.position)
    content = io.BytesIO()
    np.savez(content, positions=np.array(positions, np.int64), **arrays)  # type: ignore[arg-type]
    write_atomically(path, content.getvalue())


def join_shards(
    shards: Sequence[Shard], work: ShardWork
) -> Iterator[tuple[int, int, dict[str, EncodedSplit]]]:
    """The encoded batches of all shards, in the order of the corpus.

    Yields:
        Index of the source, bytes of all sources up to the end of the batch, and the encoded batch.
        Document numbers ascend over all shards, with gaps.

    Raises:
        UserError: a shard has not been encoded.
    """
    next_document = 0
    for _, group in itertools.groupby(shards, lambda shard: (shard.source, shard.position)):
        same, first_document = list(group), next_document
        with contextlib.ExitStack() as opened:
            files = [_open(as_path(work.directory) / shard.name, opened) for shard in same]
            for number in itertools.count():
                (file, positions), index = files[number % len(files)], number // len(files)
                if index == len(positions):
                    break
                with _readable(as_path(work.directory) / same[number % len(files)].name):
                    encoded = {
                        split: _encoded(file, index, split, first_document) for split in SPLITS
                    }
                for part in encoded.values():
                    next_document = max([next_document, *(part.documents[-1:, 0] + 1)])
                position = same[0].position + positions[index]
                yield same[0].source, position, encoded


def _groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of neighbours with at most `most` bytes in total; each has at least one element."""
    start, size = 0, 0
    for stop, added in enumerate(sizes):
        if stop > start and size + added > most:
            yield start, stop
            start, size = stop, 0
        size += added
    yield start, len(sizes)


def _key(number: int, split: str, field: str) -> str:
    return f"{number}/{split}/{field}"


def _open(path: Path, opened: contextlib.ExitStack) -> tuple["np.lib.npyio.NpzFile", list[int]]:
    """Opens a shard's file; returns it with the positions of its batches."""
    with _readable(path):
        file = opened.enter_context(open_binary(path))
        arrays: np.lib.npyio.NpzFile = np.load(file, allow_pickle=False)
        return arrays, arrays["positions"].tolist()


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns errors of a shard's file, which has checksums, into a UserError."""
    try:
        with reachable(path):
            yield
    except (OSError, ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read: {error}; remove it and run again") from error


def _encoded(
    file: "np.lib.npyio.NpzFile", number: int, split: str, first_document: int
) -> EncodedSplit:
    fields = {
        field.name: file[_key(number, split, field.name)]
        for field in dataclasses.fields(EncodedSplit)
    }
    fields["documents"] = fields["documents"] + [first_document, 0, 0, 0, 0]
    return EncodedSplit(**fields)
