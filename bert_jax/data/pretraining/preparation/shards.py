"""Encoded text between reading and joining: one file a batch, made by any process or machine.

    DIRECTORY/tokenizer/             the tokenizer, which all machines load
    DIRECTORY/000002-000007.npz      batch 7 of shard 2: the arrays of `EncodedBatch`

A shard is a group of files of one source, read by one process. Its batches are encoded by others:
worker processes of this machine, or the machines of a Beam runner. Files that exist are not made
again, so an interrupted call continues, also with another runner; at the end they are joined in
their order.
"""

import dataclasses
import functools
import io
import itertools
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from bert_jax.data.pretraining.corpus import TOKENIZER_DIRECTORY
from bert_jax.data.pretraining.options import PrepareOptions
from bert_jax.data.pretraining.preparation.encoding import (
    EncodedBatch,
    NumberedBlock,
    encode_blocks,
    numbered_blocks,
)
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import UserError
from bert_jax.files import as_path, is_remote, open_binary, reachable, write_atomically
from bert_jax.files.reading import open_own
from bert_jax.tokenization import load_tokenizer

SHARD_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """Some files of one source.

    Attributes:
        number: number of the shard, in the order of the corpus.
        source: index of the source.
        text: the source, reduced to these files.
        position: total bytes of all shards before this one.
    """

    number: int
    source: int
    text: Source
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class EncodingWork:
    """What all processes and machines have to know.

    Attributes:
        directory: directory of the files; a string, since it is sent to other machines.
        options: the options of the corpus.
        limit: maximum number of documents of each source.
        batch_characters: a batch ends with the block that reaches this number of characters.
        done: names of the files that exist, which only `read_shard` needs.
    """

    directory: str
    options: PrepareOptions
    limit: int | None
    batch_characters: int
    done: frozenset[str] = frozenset()


class TextBatch(NamedTuple):
    """Consecutive blocks of a shard.

    Attributes:
        name: name of the file of the encoded batch.
        blocks: the text; the last batch of a shard may have none.
        is_last: whether it is the last batch of its shard.
        position: total bytes of all shards up to the end of the batch.
    """

    name: str
    blocks: tuple[NumberedBlock, ...]
    is_last: bool
    position: int


EncodeShards = Callable[[Sequence[Shard], EncodingWork], None]
"""Calls `encode_batch` for every batch of `read_shard` of every shard, on any machines."""


def plan_shards(
    sources: Sequence[Source], limit: int | None, shard_bytes: int = SHARD_BYTES
) -> list[Shard]:
    """Groups the files of sources to at most `shard_bytes`, in the order of the corpus.

    A larger file is one shard, and so is a source that is read up to a limit of documents.
    """
    shards: list[Shard] = []
    position = 0
    for index, source in enumerate(sources):
        sizes = source.piece_sizes if limit is None else [source.size]
        for start, stop in _groups(sizes, shard_bytes):
            text = source.pieces(start, stop) if limit is None else source
            shards.append(Shard(len(shards), index, text, position))
            position += sum(sizes[start:stop])
    return shards


def _groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of neighbours with at most `most` bytes in total; each has at least one element."""
    start, size = 0, 0
    for stop, added in enumerate(sizes):
        if stop > start and size + added > most:
            yield start, stop
            start, size = stop, 0
        size += added
    yield start, len(sizes)


def read_shard(shard: Shard, work: EncodingWork) -> Iterator[TextBatch]:
    """The batches of a shard that have no file yet."""
    numbers = itertools.count()

    def batch(blocks: list[NumberedBlock], is_last: bool) -> Iterator[TextBatch]:
        name = _name(shard, next(numbers))
        if name not in work.done:
            position = shard.position + (shard.text.size if is_last else shard.text.position)
            yield TextBatch(name, tuple(blocks), is_last, position)

    blocks: list[NumberedBlock] = []
    characters = 0
    for block in numbered_blocks(shard.text, work.options, work.limit):
        blocks.append(block)
        characters += len(block.text)
        if characters >= work.batch_characters:
            yield from batch(blocks, is_last=False)
            blocks, characters = [], 0
    yield from batch(blocks, is_last=True)


def encode_batch(batch: TextBatch, work: EncodingWork) -> int:
    """Writes the file of a batch; returns the number of its tokens."""
    tokenizer = _tokenizer(f"{work.directory}/{TOKENIZER_DIRECTORY}")
    encoded = encode_blocks(batch.blocks, tokenizer, work.options)
    content = io.BytesIO()
    np.savez(content, is_last=batch.is_last, **encoded._asdict())
    write_atomically(as_path(work.directory) / batch.name, content.getvalue())
    return len(encoded.tokens)


# A process loads it once.
_tokenizer = functools.lru_cache(maxsize=1)(load_tokenizer)


def join_shards(
    shards: Sequence[Shard], work: EncodingWork
) -> Iterator[tuple[Shard, EncodedBatch]]:
    """The encoded batches of all shards, in the order of the corpus.

    Raises:
        UserError: the file of a batch is missing, damaged, or a link.
    """
    for shard in shards:
        for number in itertools.count():
            encoded, is_last = _read_batch(work.directory, _name(shard, number))
            yield shard, encoded
            if is_last:
                break


def _read_batch(directory: str, name: str) -> tuple[EncodedBatch, bool]:
    path = as_path(directory) / name
    try:
        with reachable(path), _open(path) as file, np.load(file, allow_pickle=False) as arrays:
            encoded = EncodedBatch(*map(arrays.__getitem__, EncodedBatch._fields))
            return encoded, bool(arrays["is_last"])
    except (OSError, ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot be read: {error}; remove it and run again") from error


def _open(path: Path) -> BinaryIO:
    return open_binary(path) if is_remote(path) else open(open_own(path), "rb")


def _name(shard: Shard, number: int) -> str:
    return f"{shard.number:06d}-{number:06d}.npz"
