"""A text, a vocabulary and corpora that are small enough to check by eye."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.options import PrepareOptions, PretrainingOptions
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.data.pretraining.sources import SourceSpec
from bert_jax.tokenization import BertSwitches, Tokenizer, WordPieceTokenizer

# Ten a line: ids 0-9, 10-19, 20-29 and 30-39.
_VOCABULARY = """
[PAD] [UNK] [CLS] [SEP] [MASK] . the a it was
cat dog bird boy mat tree song sun sea shell
sat ran sang walk play went found on in to
and up down warm long low one ##s ##ed ##er
"""
PIECES = _VOCABULARY.split()

# A document is a block of lines, a sentence a line.
TEXT = """\
the cat sat on the mat .
it was warm .
the dog ran to the tree .
the cat ran up .

a bird sang in the tree .
the song was long and low .
the sun went down .

the boys walked to the sea .
one played .
one found a shell .
it was long and warm .

the sun went up .
the sea was low and the boys ran down to it .
the dogs ran on .

the song was long .
the bird went to the sea and sang to the sun .
"""


@pytest.fixture(scope="session")
def pieces() -> list[str]:
    """The vocabulary, 40 pieces."""
    return list(PIECES)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """WordPiece over `PIECES`."""
    return WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(True, None, True))


@pytest.fixture(scope="session")
def documents() -> list[list[str]]:
    """The sentences of each document of `TEXT`."""
    return [block.splitlines() for block in TEXT.split("\n\n")]


@pytest.fixture(scope="session")
def numbered_tokenizer() -> Tokenizer:
    """3,000 pieces for corpora with ids that count up, so that an id tells its position.

    Id n continues a word where n % 4 == 0 or n % 12 == 1: words have one to three pieces, as in
    5 | 6 | 7 8 | 9 | 10 | 11 12 13 | 14 | 15 16 | 17 | …
    """
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    numbers = range(len(special), 3000)
    words = [f"##w{n}" if n % 4 == 0 or n % 12 == 1 else f"w{n}" for n in numbers]
    return WordPieceTokenizer.from_vocabulary(special + words, BertSwitches(True, None, True))


SplitMaker = Callable[..., CorpusSplit]


@pytest.fixture(scope="session")
def make_split() -> SplitMaker:
    """Builds a split in memory from the ids of sentences of documents."""

    def make(
        documents: Sequence[Sequence[Sequence[int]]],
        source_documents: Sequence[int] | None = None,
        source_weights: Sequence[float] = (1.0,),
    ) -> CorpusSplit:
        sentences = [sentence for document in documents for sentence in document]
        boundaries = [0, len(documents)] if source_documents is None else source_documents
        return CorpusSplit(
            tokens=np.array([token for sentence in sentences for token in sentence], np.uint16),
            sentence_offsets=np.cumsum([0, *map(len, sentences)], dtype=np.int64),
            document_offsets=np.cumsum([0, *map(len, documents)], dtype=np.int64),
            source_documents=np.array(boundaries, np.int64),
            source_weights=np.array(source_weights, np.float64),
        )

    return make


@pytest.fixture(scope="session")
def tiny_batches(
    tokenizer: Tokenizer, documents: list[list[str]], make_split: SplitMaker
) -> Callable[..., PretrainingBatches]:
    """Builds the batches of `TEXT`, 20 tokens long, with any options of `PretrainingOptions`."""
    split = make_split([tokenizer.encode_sentences(sentences) for sentences in documents])

    def make(**options: Any) -> PretrainingBatches:
        chosen = {"length": 20, "max_predictions": 4} | options
        return PretrainingBatches(split, tokenizer, PretrainingOptions(**chosen))

    return make


@pytest.fixture(scope="session")
def make_numbered_split(make_split: SplitMaker) -> SplitMaker:
    """Builds a split from the lengths of sentences of documents; ids count up from 5.

    Past 3,000 ids (the vocabulary of `numbered_tokenizer`) they begin again at 5.
    """

    def make(
        lengths: Sequence[Sequence[int]],
        source_documents: Sequence[int] | None = None,
        source_weights: Sequence[float] = (1.0,),
    ) -> CorpusSplit:
        total = sum(map(sum, lengths))
        ids = iter(5 + np.arange(total) % 2995)
        documents = [[[next(ids) for _ in range(size)] for size in sizes] for sizes in lengths]
        return make_split(documents, source_documents, source_weights)

    return make


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with `TEXT`."""
    path: Path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="session")
def make_tiny_corpus(
    tiny_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Prepares `TEXT` as a corpus on disk; `validation` as in `PrepareOptions`."""

    def make(validation: float) -> Path:
        directory = tmp_path_factory.mktemp("corpus")
        (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n")
        options = PrepareOptions(
            (SourceSpec(f"text:{tiny_text}"),),
            tokenizer=str(directory / "vocab.txt"),
            validation_fraction=validation,
            sentences="lines",
        )
        prepare(options, directory / "corpus", workers=1, progress=False)
        return directory / "corpus"

    return make


@pytest.fixture(scope="session")
def tiny_corpus(make_tiny_corpus: Callable[..., Path]) -> Path:
    """The corpus with its last document validation."""
    return make_tiny_corpus(validation=1e-6)


def directory_bytes(path: Path) -> dict[str, bytes]:
    """The content of every file below a directory, by its relative path."""
    return {f.relative_to(path).as_posix(): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def rows_of(batch: Batch) -> list[Batch]:
    """The rows of a batch, each with the keys of the batch."""
    return [{name: a[row] for name, a in batch.items()} for row in range(len(batch["input_ids"]))]


def within(count: int, total: int, share: float) -> bool:
    """Whether `count` of `total` draws is within four standard deviations of `share`."""
    return abs(count - total * share) <= 4 * math.sqrt(total * share * (1 - share))
