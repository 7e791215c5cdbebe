"""Trains the tokenizer of a corpus from the documents of its train split."""

import dataclasses
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from bert_jax.data.pretraining.preparation.encoding import ValidationSplit, read_batches
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import OptionError, renamed_options, require_at_least, require_one_of
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    SENTENCEPIECE,
    WORDPIECE,
    Tokenizer,
)

KINDS = (WORDPIECE, SENTENCEPIECE, BYTE_LEVEL_BPE)

_READ_CHARACTERS = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class VocabularyOptions:
    """Options of the training of a vocabulary.

    Attributes:
        kind: "wordpiece", "sentencepiece" or "byte_level_bpe".
        vocab_size: number of ids, including special tokens.
        lowercase: whether text is lower-cased first; byte-level BPE keeps the case.
        train_characters: maximum amount of training text, in characters; the sources of a mixture
            share it by their weights.
    """

    kind: str = "wordpiece"
    vocab_size: int = 30_522
    lowercase: bool = True
    train_characters: int = 200_000_000

    def __post_init__(self) -> None:
        require_one_of("kind", self.kind, KINDS)
        if self.lowercase and self.kind == BYTE_LEVEL_BPE:
            rule = "byte-level BPE keeps upper and lower case: set {lowercase} to false"
            raise OptionError("lowercase", True, rule)
        for name in ("vocab_size", "train_characters"):
            require_at_least(name, getattr(self, name), 1)


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
        options: kind and size of the vocabulary.
        sources: the opened sources.
        validation: the split, whose validation documents are left out.
        limit: maximum number of documents of each source.
        progress: whether a progress bar is shown on stderr.

    Raises:
        UserError: a source cannot be read, or there is too little text for the vocabulary.
    """
    from bert_jax.tokenization import (
        train_byte_level_bpe,
        train_sentencepiece,
        train_wordpiece,
    )

    size, lowercase = options.vocab_size, options.lowercase
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
            if options.kind == BYTE_LEVEL_BPE:
                return train_byte_level_bpe(texts, vocab_size=size)
            train = train_wordpiece if options.kind == WORDPIECE else train_sentencepiece
            return train(texts, vocab_size=size, lowercase=lowercase)


def _train_texts(
    characters: int,
    sources: Sequence[Source],
    validation: ValidationSplit,
    limit: int | None,
    bar: tqdm,
) -> Iterator[str]:
    """Paragraphs of all sources; each source contributes a number of characters by its weight."""
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
