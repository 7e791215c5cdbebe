"""Sources to chunks: the unit of work of corpus preparation.

Everything that depends on the order of reading happens here, in one process: documents are
numbered and put on a side of the validation split. What is done with a chunk depends on nothing
but the chunk.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkBlock:
    """A block of a document (`sources.Block`) with its place in the corpus.

    Attributes:
        document: number of the document, counted over all sources from 0.
        split: "train" or "validation".
        text: the block's text.
    """

    document: int
    split: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive blocks of one source.

    Attributes:
        source: index of the source.
        blocks: at least one.
        position: bytes of all sources that were read up to the end of the chunk.
    """

    source: int
    blocks: tuple[ChunkBlock, ...]
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class ValidationSplit:
    """Which documents are validation for evaluation.

    Attributes:
        fraction: expected share of documents, in [0, 1).
        seed: another seed holds out other documents.
    """

    fraction: float
    seed: int

    def split_of(self, text: str) -> str:
        """The side of a document, from the text of its first block.

        So copies of a document fall on the same side, wherever they stand.
        """
        key = self.seed.to_bytes(16, "little", signed=True)
        digest = hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
        is_validation = int.from_bytes(digest, "little") < self.fraction * 2**64
        return "validation" if is_validation else "train"


def read_chunks(
    sources: Sequence[Source], validation: ValidationSplit, *, limit: int | None, characters: int
) -> Iterator[Chunk]:
    """The text of all sources, one after the other.

    Args:
        sources: opened sources.
        validation: how documents are split.
        limit: the most documents of each source; None for all.
        characters: a chunk ends with the block that reaches so many.

    Raises:
        UserError: a source cannot be read or has no text.
    """
    document, read_before = 0, 0
    for index, source in enumerate(sources):
        first_document = document
        for chunk in source_chunks(
            source, validation, index, first_document, limit=limit, characters=characters
        ):
            document = chunk.blocks[-1].document + 1
            yield dataclasses.replace(chunk, position=read_before + chunk.position)
        if document == first_document:
            raise UserError(f"data.source: {source.spec.source!r} has no text in it")
        read_before += source.size


def source_chunks(
    source: Source,
    validation: ValidationSplit,
    index: int = 0,
    first_document: int = 0,
    *,
    limit: int | None,
    characters: int,
) -> Iterator[Chunk]:
    """The text of one source, which may be none.

    Args:
        source: opened.
        validation: how documents are split.
        index: `Chunk.source`.
        first_document: number of the first document.
        limit: the most documents; None for all.
        characters: see `read_chunks`.
    """
    document = first_document - 1
    split = "train"
    blocks: list[ChunkBlock] = []
    size = 0
    for block in source.blocks():
        if block.starts_document:
            if limit is not None and document + 1 - first_document == limit:
                break
            document += 1
            split = validation.split_of(block.text)
        blocks.append(ChunkBlock(document, split, block.text))
        size += len(block.text)
        if size >= characters:
            yield Chunk(index, tuple(blocks), source.position)
            blocks, size = [], 0
    if blocks:
        yield Chunk(index, tuple(blocks), source.size)
