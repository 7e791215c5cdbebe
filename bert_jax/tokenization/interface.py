"""The interface of all tokenizers."""

import abc
import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_jax.errors import UserError
from bert_jax.tokenization.settings import TokenizerSettings
from bert_jax.tokenization.template import Template

# The five special tokens in each spelling, in the order of the fields of `SpecialIds`: that of
# BERT, of SentencePiece, of fairseq (RoBERTa, CamemBERT, XLM-R), and of ALBERT.
BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLED = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")
FAIRSEQ = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
ALBERT = (*ANGLED[:2], *BRACKETED[2:])

# Their keys in `tokenizer_config.json`, in the same order.
TOKEN_KEYS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")

# The kinds of tokenizers: BERT's, ALBERT's, RoBERTa's, and those of CamemBERT and XLM-R, which are
# SentencePiece models with other ids and without cleaning.
WORDPIECE, SENTENCEPIECE, BYTE_LEVEL_BPE = "wordpiece", "sentencepiece", "byte_level_bpe"
CAMEMBERT, XLM_ROBERTA = "camembert", "xlm_roberta"

MAX_VOCABULARY_SIZE = 1 << 21
"""The limit of V: twice the largest known vocabulary, that of XLM-V."""


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the five special tokens of BERT (paper, section 3); None for one that is missing."""

    pad: int | None
    unk: int | None
    cls: int | None
    sep: int | None
    mask: int | None

    def known(self) -> list[int]:
        """The ids of those that are not missing."""
        return [token_id for token_id in dataclasses.astuple(self) if token_id is not None]


def check_vocabulary_size(origin: Any, count: int, vocab_size: int | None) -> None:
    """Refuses a vocabulary that is too large, before a tokenizer is made of it.

    Args:
        origin: file to name in errors.
        count: number of its pieces.
        vocab_size: V of the model; None: any up to `MAX_VOCABULARY_SIZE`.

    Raises:
        UserError: there are more pieces than ids.
    """
    if vocab_size is not None and count > vocab_size:
        raise UserError(
            f"{origin}: the tokenizer has {count} ids, the model only {vocab_size}; they do not "
            "belong together"
        )
    if count > MAX_VOCABULARY_SIZE:
        raise UserError(
            f"{origin}: the vocabulary has {count:,} pieces; the limit is {MAX_VOCABULARY_SIZE:,}: "
            "give a smaller one"
        )


def is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, which JSON can contain."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_padded(count: int, rows: int) -> bool:
    """Whether a table has only the rows that round its size up to a multiple of 8 to 128."""
    return any(rows == -(-count // multiple) * multiple for multiple in (1, 8, 16, 32, 64, 128))


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of one text, without special tokens; all lists have the same length.

    Attributes:
        ids: token ids.
        tokens: the pieces as text, e.g. `["[CLS]", "play", "##ing", "[SEP]"]`.
        offsets: (start, end) in characters of the text that the token comes from; (0, 0) for
            special tokens.
        word_ids: index of the word within its text; None for special tokens.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> "Pieces":
        """The pieces `start` to `stop` - 1."""
        kept = slice(start, stop)
        return Pieces(self.ids[kept], self.tokens[kept], self.offsets[kept], self.word_ids[kept])


@dataclasses.dataclass(frozen=True)
class Encoding(Pieces):
    """One encoded text or pair with its special tokens; all lists have the same length T.

    Attributes:
        type_ids: token types, as defined by the tokenizer's template.
        special_tokens_mask: 1 for tokens added around the texts, else 0.
    """

    type_ids: list[int]
    special_tokens_mask: list[int]


class Tokenizer(abc.ABC):
    """Text to ids and back.

    Attributes:
        special_ids: ids of [PAD], [UNK], [CLS], [SEP], [MASK].
        vocab_size: V, number of ids.
        template: positions of special tokens and token types around texts.
        settings: limits and further keys of its files.
    """

    special_ids: SpecialIds
    vocab_size: int
    template: Template
    settings: TokenizerSettings = TokenizerSettings()

    @property
    def model_max_length(self) -> int | None:
        """The maximum number of tokens that the tokenizer's files give; None for no limit."""
        return self.settings.model_max_length

    @property
    def truncation_side(self) -> str:
        """The side where `encode_batch` cuts a text: "right", or "left" if the files say so."""
        return self.settings.truncation_side

    def with_settings(self, settings: TokenizerSettings) -> Self:
        """This tokenizer with other settings; this one is not changed."""
        changed = copy.copy(self)
        changed.settings = settings
        return changed

    @property
    def padding_id(self) -> int:
        """The id of padding, which attention leaves out; 0 without a special token for it."""
        return self.special_ids.pad or 0

    def special_id(self, name: str, use: str) -> int:
        """The id of a special token.

        Args:
            name: field of `SpecialIds`.
            use: what needs it, the first words of the message.

        Raises:
            UserError: the tokenizer does not have it.
        """
        token_id: int | None = getattr(self.special_ids, name)
        if token_id is None:
            raise UserError(
                f"{use}: the tokenizer has no {name} token; copy all files of the model's "
                f"tokenizer, or name its token as {name}_token in tokenizer_config.json"
            )
        return token_id

    def template_id(self, name: str) -> int:
        """The id of a special token of the template, see `TemplatePart.name`."""
        token_id = getattr(self.special_ids, name, None)
        return self.token_to_id(name) or 0 if token_id is None else token_id

    def check_template(self, origin: str, names: Sequence[str | None]) -> None:
        """Refuses a vocabulary that lacks a special token of the template.

        Args:
            origin: file to name in errors.
            names: the five special tokens, in the order of the fields of `SpecialIds`.

        Raises:
            UserError: see above.
        """
        ids = dict(zip(TOKEN_KEYS, dataclasses.astuple(self.special_ids), strict=True))
        named = dict(zip(TOKEN_KEYS, names, strict=True))
        for part, _ in (*self.template.parts(pair=False), *self.template.parts(pair=True)):
            key = f"{part}_token"
            missing = ids[key] is None if key in ids else self.token_to_id(part) is None
            if missing and part not in ("A", "B"):
                raise UserError(
                    f"{origin}: the vocabulary has no {named.get(key) or part}; copy all files of "
                    f"the model's tokenizer, or name its own token as {key} in "
                    "tokenizer_config.json"
                )

    def without_token_types(self) -> Self:
        """This tokenizer with token type 0 for all tokens; this one is not changed."""
        changed = copy.copy(self)
        changed.template = self.template.without_token_types()
        return changed

    def num_special_tokens(self, *, pair: bool) -> int:
        """The number of special tokens that are added to one text or to a pair."""
        return self.template.num_special_tokens(pair=pair)

    def supports_pairs(self, type_vocab_size: int) -> bool:
        """Whether a model with this many token types has all that `template` uses for a pair."""
        # A model without a table of token types computes type 0 for all.
        return self.template.num_token_types(pair=True) <= max(1, type_vocab_size)

    def check_pairs(self, type_vocab_size: int, what: str) -> None:
        """Refuses pairs of texts if the model cannot tell their texts apart.

        Args:
            type_vocab_size: number of token types of the model.
            what: first words of the message, such as "choices".

        Raises:
            UserError: see `supports_pairs`.
        """
        if not self.supports_pairs(type_vocab_size):
            raise UserError(
                f"{what} need a model that tells two texts apart, but this one has type_vocab_size "
                f"{type_vocab_size}; give another model"
            )

    @abc.abstractmethod
    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncation: str = "longest_first",
        add_special_tokens: bool = True,
    ) -> list[Encoding]:
        """Encodes texts, or texts with their pairs, in the form of `template`.

        A text that is too long is cut on its `truncation_side`.

        Args:
            texts: B texts.
            pairs: None, or B second texts.
            max_length: maximum number of tokens of one encoding, special tokens included; None for
                no limit.
            truncation: side that is cut: "longest_first", "only_first" or "only_second".
            add_special_tokens: whether the special tokens of `template` are added.

        Returns:
            B encodings, unpadded.

        Raises:
            UserError: `max_length` leaves no space for text, or `texts` and `pairs` differ in
                length.
        """

    def encode_words(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodes sentences that are words joined by spaces, without special tokens.

        Each word gets the ids that it has after a space, also the first one.
        """
        return self.encode_batch(texts, add_special_tokens=False)

    @abc.abstractmethod
    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of plain text, without special tokens: the fast path of corpus preparation.

        A literal "[MASK]" or "[SEP]" in the text is ordinary text, never a special token.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids, with pieces joined to words."""

    @abc.abstractmethod
    def id_to_token(self, token_id: int) -> str:
        """The piece of an id."""

    def readable_token(self, token_id: int) -> str:
        """The piece of an id as people read it."""
        return self.id_to_token(token_id)

    @abc.abstractmethod
    def token_to_id(self, token: str) -> int | None:
        """The id of a piece, or None."""

    @abc.abstractmethod
    def continuations(self) -> np.ndarray:
        """Whether a piece continues a word ("##ing"; no leading "▁"): bool [V].

        False for special tokens.
        """

    @abc.abstractmethod
    def with_words(self, words: Sequence[str], *, whole: bool = False) -> Self:
        """A tokenizer with more words; this one is not changed.

        Each word is normalised like text, and becomes one piece, with the ids V, V+1, … in the
        order of `words`. Words in the vocabulary and repeated words are skipped, so the new pieces
        are those from V on. Only whole words can be added: a piece inside words ("##19") would
        change the ids of other words.

        With `whole`, each is a marker such as "[E1]" or "<user>", which is found as it is written,
        anywhere in a text and before the text is split. A marker is not a special token: `decode`
        keeps it, and `encode_sentences` finds it. Every kind of tokenizer takes them. A
        piece of the vocabulary, such as "[unused1]", keeps its id.

        Words that do not begin with a new word keep their ids. Others are split after the new word:
        with "covid", "covids" is "covid", "##s", and unknown if the rest has no pieces.

        Args:
            words: the words.
            whole: whether they are markers.

        Raises:
            UserError: a word is empty; or, without `whole`, it is never a single piece of text,
                because it is split ("New York", "covid-19") or too long, or the tokenizer cannot
                take words.
        """

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """16 hex digits that change whenever any text could get other ids."""

    @property
    def rules_of_rows(self) -> list[Any]:
        """Everything that the rows of texts depend on, as values of JSON."""
        limits = self.model_max_length, self.truncation_side
        return [self.fingerprint(), *dataclasses.astuple(self.template), *limits]

    @abc.abstractmethod
    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes the tokenizer files of a model directory (Hugging Face's layout).

        Args:
            directory: directory, created if missing.
            max_length: number of tokens that the model takes, for other programs that read the
                files; `model_max_length` has precedence.
        """
