"""The options of `bert-jax prepare`, and of the examples that a training makes of a corpus."""

import dataclasses
import hashlib
import re
from typing import Self

from bert_jax.data.pretraining.sources import SourceSpec, no_source
from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of
from bert_jax.tokenization.interface import (
    BYTE_LEVEL_BPE,
    GPT2,
    MARIAN,
    SENTENCEPIECE,
    T5,
    WORDPIECE,
)
from bert_jax.tokenization.sentencepiece_training import MODEL_TYPES
from bert_jax.tokenization.training import COVERAGE

OBJECTIVES = ("nsp", "sop", "none")
KINDS = (WORDPIECE, SENTENCEPIECE, BYTE_LEVEL_BPE, GPT2, T5, MARIAN)
UNITS = ("token", "token_with_replacement", "whole_word", "ngram", "span")
ROUNDINGS = ("nearest", "up", "random")
RANDOM_TOKENS = ("vocabulary", "non_special", "corpus")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


@dataclasses.dataclass(frozen=True, slots=True)
class VocabularyOptions:
    """Options of the training of a vocabulary.

    Attributes:
        kind: "wordpiece" (as BERT), "sentencepiece" (ALBERT), "byte_level_bpe" (RoBERTa, BART),
            "gpt2", "t5", or "marian", one SentencePiece model for both languages of a translation.
        model_type: "unigram" or "bpe", for the kinds "sentencepiece" and "marian".
        vocab_size: number of ids, including special tokens.
        lowercase: whether text is lower-cased first; byte-level BPE keeps the case.
        character_coverage: share of the characters of the training text that the alphabet covers,
            in (0, 1]; WordPiece keeps the 1,000 most frequent ones in any case, and no more than
            fit into `vocab_size`. Byte-level BPE knows every character.
        train_characters: maximum amount of training text, in characters; the sources of a mixture
            share it by their weights.
    """

    kind: str = "wordpiece"
    model_type: str = "unigram"
    vocab_size: int = 30_522
    lowercase: bool = True
    character_coverage: float = COVERAGE
    train_characters: int = 200_000_000

    def __post_init__(self) -> None:
        require_one_of("tokenizer.kind", self.kind, KINDS)
        require_one_of("tokenizer.model_type", self.model_type, MODEL_TYPES)
        if self.model_type != MODEL_TYPES[0] and self.kind not in (SENTENCEPIECE, MARIAN):
            rule = f"it is for {SENTENCEPIECE} and {MARIAN}: set {{tokenizer.kind}} to one of them"
            raise OptionError("tokenizer.model_type", self.model_type, rule)
        is_byte_level = self.kind in (BYTE_LEVEL_BPE, GPT2)
        if self.lowercase and is_byte_level:
            rule = "byte-level BPE keeps upper and lower case: set {tokenizer.lowercase} to false"
            raise OptionError("tokenizer.lowercase", True, rule)
        if self.character_coverage != COVERAGE and is_byte_level:
            rule = "byte-level BPE knows every character: leave {tokenizer.character_coverage} out"
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


@dataclasses.dataclass(frozen=True)
class PretrainingOptions:
    """Length, objective and masking of the examples.

    Attributes:
        length: T, tokens of a sequence, including [CLS], [SEP] and padding.
        objective: "nsp" (is the second sentence the next one?), "sop" (are the two in order?) or
            "none" (consecutive whole sentences of one document, RoBERTa's DOC-SENTENCES).
        cross_documents: with "none", whether a sequence continues in the next document of the
            corpus, with a [SEP] between the two (RoBERTa's FULL-SENTENCES).
        masking: unit of masking: "token"; "token_with_replacement" (positions are drawn
            with replacement and count once, so that fewer are masked: ELECTRA); "whole_word" (all
            pieces of a word; BERT's later models); "ngram" (1 to 3 whole words in a row, the
            shorter the more often: ALBERT, section 4.1) or "span" (1 to 10 whole words in a row:
            SpanBERT, section 3.1).
        max_predictions: P, maximum number of masked tokens of a sequence.
        mask_fraction: fraction of the tokens that is masked.
        validation_mask_fraction: the same for the evaluation, so that models that were trained with
            different fractions can be compared; 0: `mask_fraction`.
        mask_rounding: how the number of masked tokens becomes a whole number: "nearest", "up"
            (SpanBERT) or "random", up with the probability of its fractional part (RoBERTa).
        mask_replace_prob, random_replace_prob: fractions of the masked tokens that become [MASK],
            or a random token; the other masked tokens are unchanged.
        random_tokens: a random token is any id of the "vocabulary", a "non_special" one (RoBERTa),
            or a token of the "corpus", as frequent as there (SpanBERT).
        span_boundary: with masking "span", whether the masked tokens are also predicted from the
            two tokens next to their span (SpanBERT's span-boundary objective).
        max_span_targets: maximum number of tokens of a span that are predicted so.
        short_probability: fraction of examples with a uniform target length, from 2 tokens on.
        seed: seed of all random choices.
    """

    length: int = 128
    objective: str = "nsp"
    cross_documents: bool = False
    masking: str = "token"
    max_predictions: int = 20
    mask_fraction: float = 0.15
    validation_mask_fraction: float = 0.0
    mask_rounding: str = "nearest"
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    random_tokens: str = "vocabulary"
    span_boundary: bool = False
    max_span_targets: int = 20
    short_probability: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("data.length", self.length, 8)
        require_one_of("data.masking", self.masking, UNITS)
        require_one_of("data.mask_rounding", self.mask_rounding, ROUNDINGS)
        require_one_of("data.random_tokens", self.random_tokens, RANDOM_TOKENS)
        require_at_least("data.max_predictions", self.max_predictions, 1)
        require_between(
            "data.mask_fraction", self.mask_fraction, 0, 1, without_low=True, without_high=True
        )
        require_between(
            "data.validation_mask_fraction", self.validation_mask_fraction, 0, 1, without_high=True
        )
        require_between("data.mask_replace_prob", self.mask_replace_prob, 0, 1)
        require_between("data.random_replace_prob", self.random_replace_prob, 0, 1)
        if self.mask_replace_prob + self.random_replace_prob > 1:
            rule = (
                f"with {{data.mask_replace_prob}}, {self.mask_replace_prob}, it must be at most 1"
            )
            raise OptionError("data.random_replace_prob", self.random_replace_prob, rule)
        require_one_of("data.objective", self.objective, OBJECTIVES)
        require_between("data.short_probability", self.short_probability, 0, 1)
        if self.cross_documents and self.objective != "none":
            rule = (
                f"only {{data.objective=none}} continues in the next document, not {self.objective}"
            )
            raise OptionError("data.cross_documents", self.cross_documents, rule)
        require_at_least("data.max_span_targets", self.max_span_targets, 1)
        if self.span_boundary and self.masking != "span":
            rule = f"set {{data.masking=span}}, which is {self.masking}"
            raise OptionError("data.span_boundary", self.span_boundary, rule)
        if self.span_boundary and self.objective != "none":
            rule = f"set {{data.objective=none}}, which is {self.objective}: it is for single texts"
            raise OptionError("data.span_boundary", self.span_boundary, rule)

    @property
    def for_validation(self) -> Self:
        """The options of the examples of an evaluation."""
        fraction = self.validation_mask_fraction or self.mask_fraction
        return dataclasses.replace(self, mask_fraction=fraction)
