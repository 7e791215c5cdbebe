"""A corpus in shards: any machines encode them, in any order, and one joins what they wrote.

A shard is some chunks of some files. Whoever encodes it reads the files from their start, which
is fast, and encodes only the chunks of the shard, which is not. What it finds goes to one file in
a directory that all machines reach, so nothing but names passes between them.
"""

import contextlib
import dataclasses
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bert_jax.data.pretraining.corpus_manifest import SPLITS
from bert_jax.data.pretraining.preparation.chunks import ValidationSplit, source_chunks
from bert_jax.data.pretraining.preparation.encoding import EncodedSplit, encode_chunk
from bert_jax.data.pretraining.preparation.workers import Encoder
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import UserError
from bert_jax.files import as_path, open_binary, reachable, write_atomically
from bert_jax.tokenization import load_tokenizer

SHARD_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """What one worker encodes in one go.

    Attributes:
        source: index of the source.
        text: the files of it that are read.
        position: bytes of all sources before these files.
        turn: the chunks number `turn`, `turn + turns`, `turn + 2 turns`, … of them are encoded.
        turns: how many shards share these files.
        name: of the file that holds the result.
    """

    source: int
    text: Source
    position: int
    turn: int
    turns: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShardWork:
    """What is done with every shard.

    Attributes:
        directory: where results go, as text: it is sent to other machines.
        encoder: how chunks are encoded; its tokenizer is in a place that all machines reach.
        validation: how documents are split.
        limit: the most documents of each source.
        chunk_characters: how much text is a chunk.
    """

    directory: str
    encoder: Encoder
    validation: ValidationSplit
    limit: int | None
    chunk_characters: int


def plan_shards(
    sources: Sequence[Source], limit: int | None, shard_bytes: int = SHARD_BYTES
) -> list[Shard]:
    """Cuts sources into shards of about `shard_bytes`, in the order of the corpus.

    Small files are taken together. A large one is shared by several shards, and so is a whole
    source of which only the first documents are wanted.
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
    """Encodes a shard and writes its file, unless that stands already."""
    path = as_path(work.directory) / shard.name
    with reachable(path):
        if path.exists():
            return
    encoder = work.encoder
    tokenizer = load_tokenizer(encoder.tokenizer)
    chunks = source_chunks(
        shard.text, work.validation, limit=work.limit, characters=work.chunk_characters
    )
    positions: list[int] = []
    arrays: dict[str, np.ndarray] = {}
    for chunk in itertools.islice(chunks, shard.turn, None, shard.turns):
        for split, part in encode_chunk(chunk, tokenizer, encoder.mode, encoder.language).items():
            for field in dataclasses.fields(EncodedSplit):
                arrays[_key(len(positions), split, field.name)] = getattr(part, field.name)
        positions.append(chunk.position)
    content = io.BytesIO()
    np.savez(content, positions=np.array(positions, np.int64), **arrays)  # type: ignore[arg-type]
    write_atomically(path, content.getvalue())


def join_shards(
    shards: Sequence[Shard], work: ShardWork
) -> Iterator[tuple[int, int, dict[str, EncodedSplit]]]:
    """What all shards hold, chunk after chunk in the order of the corpus.

    Yields:
        The source, the bytes of all sources that were read up to there, and the encoded chunk; its
        documents are numbered through, with gaps.

    Raises:
        UserError: a shard has not been encoded.
    """
    next_document = 0
    for _, group in itertools.groupby(shards, lambda shard: (shard.source, shard.position)):
        same, first_document = list(group), next_document
        with contextlib.ExitStack() as opened:
            files = [_open(as_path(work.directory) / shard.name, opened) for shard in same]
            for number in itertools.count():
                (file, positions), place = files[number % len(files)], number // len(files)
                if place == len(positions):
                    break
                with reachable(as_path(work.directory)):
                    encoded = {
                        split: _encoded(file, place, split, first_document) for split in SPLITS
                    }
                for part in encoded.values():
                    next_document = max([next_document, *(part.documents[-1:, 0] + 1)])
                position = same[0].position + positions[place]
                yield same[0].source, position, encoded


def _groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of neighbours that are at most so large together, each with one at least."""
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
    """A shard's file, read where it lies, and the positions of its chunks."""
    try:
        with reachable(path):
            file = opened.enter_context(open_binary(path))
            found: np.lib.npyio.NpzFile = np.load(file, allow_pickle=False)
            return found, found["positions"].tolist()
    except (OSError, ValueError) as error:
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
