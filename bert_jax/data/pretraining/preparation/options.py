"""The options of `bert-jax prepare`."""

import dataclasses
import hashlib
import re

from bert_jax.data.pretraining.sources import SourceSpec, no_source
from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE, SENTENCEPIECE, WORDPIECE
from bert_jax.tokenization.training import COVERAGE

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


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
        require_one_of("tokenizer.kind", self.kind, (WORDPIECE, SENTENCEPIECE, BYTE_LEVEL_BPE))
        if self.lowercase and self.kind == BYTE_LEVEL_BPE:
            rule = "byte-level BPE keeps upper and lower case: set tokenizer.lowercase to false"
            raise OptionError("tokenizer.lowercase", True, rule)
        if self.character_coverage != COVERAGE and self.kind == BYTE_LEVEL_BPE:
            rule = "byte-level BPE knows every character: leave tokenizer.character_coverage out"
            raise OptionError("tokenizer.character_coverage", self.character_coverage, rule)
        require_between(
            "tokenizer.character_coverage", self.character_coverage, 0, 1, without_low=True
        )
        for name in ("vocab_size", "train_characters"):
            require_at_least(f"tokenizer.{name}", getattr(self, name), 1)


@dataclasses.dataclass(frozen=True, slots=True)
class PrepareOptions:
    """The text of a corpus, and options of its encoding.

    Attributes:
        sources: sources of the text; several sources are a mixture. Their weights are stored, text
            is not repeated.
        tokenizer: directory or file of a tokenizer; None to train one.
        vocabulary: options for training a tokenizer, if none is given.
        validation_fraction: expected fraction of documents in the validation split, in [0, 1).
        sentences: "split" (by the rules of the `sentencex` library) or "lines" (a paragraph is a
            sentence).
        language: language code of the text, for "split".
        seed: another seed chooses other validation documents.
    """

    sources: tuple[SourceSpec, ...]
    tokenizer: str | None = None
    vocabulary: VocabularyOptions = dataclasses.field(default_factory=VocabularyOptions)
    validation_fraction: float = 0.01
    sentences: str = "split"
    language: str = "en"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sources:
            raise no_source()
        require_between(
            "data.validation_fraction", self.validation_fraction, 0, 1, without_high=True
        )
        require_one_of("data.sentences", self.sentences, ("split", "lines"))
        if not _LANGUAGE.fullmatch(self.language):
            rule = "it must be a language code such as 'en', 'de' or 'zh-hant'"
            raise OptionError("data.language", self.language, rule)

    def split_of(self, text: str) -> str:
        """The split of a document, from the text of its first block.

        All copies of a document are in the same split.
        """
        key = self.seed.to_bytes(16, "little", signed=True)
        digest = hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
        is_validation = int.from_bytes(digest, "little") < self.validation_fraction * 2**64
        return "validation" if is_validation else "train"
