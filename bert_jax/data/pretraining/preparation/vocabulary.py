"""Trains the tokenizer of a corpus from the documents of its train split, and checks one."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

from tqdm import tqdm

from bert_jax.data.pretraining.preparation.encoding import ValidationSplit, read_batches
from bert_jax.data.pretraining.sources import Source
from bert_jax.errors import (
    OptionError,
    listed,
    renamed_options,
    require_at_least,
    require_between,
    require_one_of,
)
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    SENTENCEPIECE,
    WORDPIECE,
    Tokenizer,
)
from bert_jax.tokenization.training import COVERAGE
from bert_jax.tokenization.wordpiece import MAX_CHARACTERS_PER_WORD

KINDS = (WORDPIECE, SENTENCEPIECE, BYTE_LEVEL_BPE)

_READ_CHARACTERS = 1 << 20
# The text that `unknown_pieces` encodes, and the share of [UNK] from which it warns.
_CHECKED_CHARACTERS = 1_000_000
_MOST_UNKNOWN = 0.001


@dataclasses.dataclass(frozen=True, slots=True)
class VocabularyOptions:
    """Options of the training of a vocabulary.

    Attributes:
        kind: "wordpiece", "sentencepiece" or "byte_level_bpe".
        vocab_size: number of ids, including special tokens.
        lowercase: whether text is lower-cased first; byte-level BPE keeps the case.
        character_coverage: share of the characters of the training text that the alphabet covers,
            in (0, 1]; WordPiece keeps the 1,000 most frequent ones in any case, and no more than
            `vocab_size` has room for. Byte-level BPE knows every character.
        train_characters: maximum amount of training text, in characters; the sources of a mixture
            share it by their weights.
    """

    kind: str = "wordpiece"
    vocab_size: int = 30_522
    lowercase: bool = True
    character_coverage: float = COVERAGE
    train_characters: int = 200_000_000

    def __post_init__(self) -> None:
        require_one_of("kind", self.kind, KINDS)
        if self.lowercase and self.kind == BYTE_LEVEL_BPE:
            rule = "byte-level BPE keeps upper and lower case: set {lowercase} to false"
            raise OptionError("lowercase", True, rule)
        if self.character_coverage != COVERAGE and self.kind == BYTE_LEVEL_BPE:
            rule = "byte-level BPE knows every character: leave {character_coverage} out"
            raise OptionError("character_coverage", self.character_coverage, rule)
        require_between("character_coverage", self.character_coverage, 0, 1, without_low=True)
        for name in ("vocab_size", "train_characters"):
            require_at_least(name, getattr(self, name), 1)


def train_vocabulary(
    options: VocabularyOptions,
    sources: Sequence[Source],
    validation: ValidationSplit,
    *,
    limit: int | None,
    progress: bool,
    report: Callable[[OptionError], object],
) -> Tokenizer:
    """Trains a tokenizer from the documents of "train", the first ones of each source.

    Args:
        options: kind and size of the vocabulary.
        sources: the opened sources.
        validation: the split, whose validation documents are left out.
        limit: maximum number of documents of each source.
        progress: whether a progress bar is shown on stderr.
        report: is called if the alphabet does not fit into the vocabulary.

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
        texts = _train_texts(options.train_characters, sources, validation, limit, bar.update)
        # A config has a size of the vocabulary in section `model`, too.
        names = {name: f"tokenizer.{name}" for name in ("vocab_size", "character_coverage")}
        with renamed_options(**names):
            if options.kind == BYTE_LEVEL_BPE:
                return train_byte_level_bpe(texts, vocab_size=size)
            coverage = options.character_coverage
            if options.kind == SENTENCEPIECE:
                return train_sentencepiece(
                    texts, vocab_size=size, lowercase=lowercase, character_coverage=coverage
                )
            return train_wordpiece(
                texts,
                vocab_size=size,
                lowercase=lowercase,
                character_coverage=coverage,
                report=lambda problem: report(problem.renamed(names)),
            )


def unknown_pieces(
    tokenizer: Tokenizer,
    sources: Sequence[Source],
    validation: ValidationSplit,
    *,
    limit: int | None,
    problems: Sequence[OptionError] | None,
) -> Iterator[str]:
    """Lines of text: the share of [UNK] at the begin of the sources, and if it is high, the cause.

    Args:
        tokenizer: tokenizer of the corpus.
        sources: the opened sources.
        validation: see `train_vocabulary`.
        limit: see `train_vocabulary`.
        problems: what `train_vocabulary` has reported; None: the tokenizer was not trained here.
    """
    texts = list(_train_texts(_CHECKED_CHARACTERS, sources, validation, limit, lambda size: None))
    unk = tokenizer.special_ids.unk
    if unk is None:  # byte-level BPE may have none
        return
    pieces = itertools.chain.from_iterable(tokenizer.encode_sentences(texts))
    counts = collections.Counter(pieces)
    share = counts[unk] / max(counts.total(), 1)
    characters = collections.Counter("".join(texts))
    name = tokenizer.readable_token(unk)
    yield f"{share:.2%} of the tokens of the first {characters.total():,} characters are {name}"
    if share <= _MOST_UNKNOWN:
        return
    found = [character for character, _ in characters.most_common()]
    unknown = [
        character
        for character, ids in zip(found, tokenizer.encode_sentences(found), strict=True)
        if unk in ids
    ]
    remedy = "leave tokenizer.path out to train one for this text"
    if problems is not None:
        cause = "".join(map(str, problems)) or "raise tokenizer.character_coverage"
        remedy = f"{cause}, or set tokenizer.kind=byte_level_bpe, tokenizer.lowercase=False"
    if 2 * sum(characters[character] for character in unknown) >= counts[unk]:
        yield (
            f"warning: the vocabulary does not have {len(unknown):,} of {len(found):,} characters "
            f"of the text, {listed(list(map(repr, unknown)))}: {remedy}"
        )
    else:
        yield (
            f"warning: most unknown words have more than {MAX_CHARACTERS_PER_WORD} characters, "
            "which WordPiece does not split: for text without spaces train "
            "tokenizer.kind=sentencepiece"
        )


def _train_texts(
    characters: int,
    sources: Sequence[Source],
    validation: ValidationSplit,
    limit: int | None,
    update: Callable[[int], object],
) -> Iterator[str]:
    """Paragraphs of all sources; each source contributes a number of characters by its weight."""
    total_weight = sum(source.spec.weight for source in sources)
    for source in sources:
        left = characters * source.spec.weight / total_weight
        for text in _train_blocks(source, validation, limit):
            yield from text[: int(left)].split("\n")
            update(min(len(text), int(left)))
            left -= len(text)
            if left < 1:
                break


def _train_blocks(source: Source, validation: ValidationSplit, limit: int | None) -> Iterator[str]:
    for batch in read_batches([source], validation, limit=limit, characters=_READ_CHARACTERS):
        yield from (block.text for block in batch.blocks if block.split == "train")
