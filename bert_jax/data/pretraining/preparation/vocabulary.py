"""Trains the tokenizer of a corpus from the documents of its train split."""

import dataclasses
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from bert_jax.data.pretraining.preparation.encoding import ValidationSplit, read_batches
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import OptionError, renamed_options
from bert_jax.tokenization.interface import Tokenizer

KINDS = ("wordpiece", "sentencepiece")

_READ_CHARACTERS = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class VocabularyOptions:
    """How a vocabulary is trained.

    Attributes:
        kind: "wordpiece" or "sentencepiece".
        vocab_size: number of ids, special tokens included.
        lowercase: whether text is lower-cased first.
        train_characters: the most text it is trained from, in characters; the sources of a mixture
            share it by their weights.
    """

    kind: str = "wordpiece"
    vocab_size: int = 30_522
    lowercase: bool = True
    train_characters: int = 200_000_000

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError("kind", self.kind, f"known are {', '.join(KINDS)}")
        if self.train_characters < 1:
            raise OptionError("train_characters", self.train_characters, "it must be at least 1")


def train_vocabulary(
    options: VocabularyOptions,
    sources: Sequence[Source],
    validation: ValidationSplit,
    *,
    limit: int | None,
    progress: bool,
) -> Tokenizer:
    """Trains a tokenizer from the documents of "train", the first ones of each source.

    Args:
        options: kind and size.
        sources: opened sources.
        validation: chooses the documents that are left out.
        limit: the most documents of each source.
        progress: whether a progress bar is shown on stderr.

    Raises:
        UserError: a source cannot be read, or the text is too little for the vocabulary.
    """
    from bert_jax.tokenization import train_sentencepiece, train_wordpiece

    train = train_wordpiece if options.kind == "wordpiece" else train_sentencepiece
    with tqdm(
        total=options.train_characters,
        desc="vocabulary: at most",
        unit=" characters",
        unit_scale=True,
        disable=not progress,
    ) as bar:
        texts = _train_texts(options.train_characters, sources, validation, limit, bar)
        # A config has a size of the vocabulary in section `model`, too.
        with renamed_options(vocab_size="tokenizer.vocab_size"):
            return train(texts, vocab_size=options.vocab_size, lowercase=options.lowercase)


def _train_texts(
    characters: int,
    sources: Sequence[Source],
    validation: ValidationSplit,
    limit: int | None,
    bar: tqdm,
) -> Iterator[str]:
    """Paragraphs of all sources; each source has a number of characters by its weight."""
    total_weight = sum(source.spec.weight for source in sources)
    for source in sources:
        left = characters * source.spec.weight / total_weight
        for text in _train_blocks(source, validation, limit):
            yield from text[: int(left)].split("\n")
            bar.update(min(len(text), int(left)))
            left -= len(text)
            if left < 1:
                break


def _train_blocks(source: Source, validation: ValidationSplit, limit: int | None) -> Iterator[str]:
    for batch in read_batches([source], validation, limit=limit, characters=_READ_CHARACTERS):
        yield from (block.text for block in batch.blocks if block.split == "train")
