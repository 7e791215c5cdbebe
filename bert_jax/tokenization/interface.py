"""The interface of all tokenizers."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError

# The five special tokens in both spellings, in the order of the fields of `SpecialIds`, which is
# also the order of the ids that vocabulary training gives them.
BRACKETED = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ANGLED = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")

# Their keys in `tokenizer_config.json`, in the same order.
TOKEN_KEYS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")

# Kinds of tokenizers.
WORDPIECE, SENTENCEPIECE = "wordpiece", "sentencepiece"


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the five special tokens of BERT (paper, section 3)."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class TemplatePart(NamedTuple):
    """One part of a template.

    Attributes:
        name: "A" or "B" for a text, else a field of `SpecialIds`.
        type_id: the token type of its tokens.
    """

    name: str
    type_id: int


@dataclasses.dataclass(frozen=True)
class Template:
    """Where special tokens and token types stand around one text, A, and around two, A and B.

    Written as "cls A sep": the texts and fields of `SpecialIds`, each with its token type after a
    colon where that is not 0.
    """

    single: str
    pair: str

    def parts(self, *, pair: bool) -> tuple[TemplatePart, ...]:
        """The template of one text or of two, part by part."""
        return self._parts[pair]

    def num_special_tokens(self, *, pair: bool) -> int:
        """How many special tokens stand around and between the texts."""
        return len(self._parts[pair]) - (2 if pair else 1)

    def num_token_types(self, *, pair: bool) -> int:
        """How many token types a model needs for it."""
        return 1 + max(part.type_id for part in self._parts[pair])

    def starts(self, lengths: Sequence[Any]) -> list[tuple[TemplatePart, Any]]:
        """Each part, and where it begins.

        Args:
            lengths: tokens of A, or of A and B: numbers, or arrays of one shape for many rows.
        """
        starts: list[tuple[TemplatePart, Any]] = []
        start: Any = 0
        for part in self.parts(pair=len(lengths) == 2):
            starts.append((part, start))
            start = start + (lengths["AB".index(part.name)] if part.name in "AB" else 1)
        return starts

    @functools.cached_property
    def _parts(self) -> tuple[tuple[TemplatePart, ...], tuple[TemplatePart, ...]]:
        return _parse(self.single, "A"), _parse(self.pair, "AB")


def _parse(template: str, texts: str) -> tuple[TemplatePart, ...]:
    named = (word.partition(":") for word in template.split())
    parts = tuple(TemplatePart(name, int(type_id or 0)) for name, _, type_id in named)
    known = {*texts, *(field.name for field in dataclasses.fields(SpecialIds))}
    names = [part.name for part in parts]
    if not known.issuperset(names) or [name for name in names if name in "AB"] != list(texts):
        raise ValueError(f"the template {template!r} must hold {' then '.join(texts)}")
    return parts


DEFAULT_TEMPLATE = Template(single="cls A sep", pair="cls A sep B:1 sep:1")
"""BERT's, and that of a tokenizer that is loaded without a model."""


def find_special_ids(
    token_to_id: Callable[[str], int | None],
    spellings: Sequence[tuple[str, ...]],
    origin: str,
) -> SpecialIds:
    """Looks the five special tokens up.

    Args:
        token_to_id: the id of a piece, None where the vocabulary has no such piece.
        spellings: some of `BRACKETED` and `ANGLED`; for each token the first one found counts.
        origin: the file to name in an error.

    Raises:
        UserError: the vocabulary lacks one of the five.
    """
    special_ids = []
    for alternatives in zip(*spellings, strict=True):
        ids = (token_to_id(token) for token in alternatives)
        special_id = next((token_id for token_id in ids if token_id is not None), None)
        if special_id is None:
            raise UserError(
                f"{origin}: the vocabulary has no {' or '.join(alternatives)}; BERT needs "
                f"{' '.join(spellings[0])}: add it, or train the tokenizer anew"
            )
        special_ids.append(special_id)
    return SpecialIds(*special_ids)


@dataclasses.dataclass(frozen=True, slots=True)
class Encoding:
    """One encoded text or pair; all lists have the same length T.

    Attributes:
        ids: token ids.
        type_ids: token types, as the tokenizer's template gives them.
        tokens: the pieces as text, e.g. `["[CLS]", "play", "##ing", "[SEP]"]`.
        offsets: (start, end) in characters of the text that the token comes from; (0, 0) for
            special tokens.
        word_ids: index of the word within its text; None for special tokens.
        special_tokens_mask: 1 for tokens added around the texts, else 0.
    """

    ids: list[int]
    type_ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    word_ids: list[int | None]
    special_tokens_mask: list[int]

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer(abc.ABC):
    """Text to ids and back.

    Attributes:
        special_ids: ids of [PAD], [UNK], [CLS], [SEP], [MASK].
        vocab_size: number of ids, V.
        template: where special tokens and token types stand around texts.
    """

    special_ids: SpecialIds
    vocab_size: int
    template: Template

    def num_special_tokens(self, *, pair: bool) -> int:
        """How many special tokens are added to one text or to two."""
        return self.template.num_special_tokens(pair=pair)

    def supports_pairs(self, type_vocab_size: int) -> bool:
        """Whether a model with so many token types has those that `template` gives to a pair."""
        return self.template.num_token_types(pair=True) <= type_vocab_size

    def check_pairs(self, type_vocab_size: int, what: str) -> None:
        """Refuses pairs of texts where the model cannot tell them apart.

        Args:
            type_vocab_size: of the model.
            what: begins the message, as "choices".

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
        """Encodes texts, or texts with their pairs, as `template` says.

        Args:
            texts: B texts.
            pairs: None, or B second texts.
            max_length: the most tokens of one encoding, special tokens counted; None for no limit.
            truncation: "longest_first", "only_first" or "only_second": where tokens are removed.
            add_special_tokens: whether the special tokens of `template` are added.

        Returns:
            B encodings, unpadded.

        Raises:
            UserError: `max_length` leaves no space for text, or `texts` and `pairs` differ in
                length.
        """

    @abc.abstractmethod
    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of plain text, without special tokens: the fast path of corpus preparation.

        A literal "[MASK]" or "[SEP]" inside the text is ordinary text here, never a special id.
        """

    @abc.abstractmethod
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids, pieces joined to words."""

    @abc.abstractmethod
    def id_to_token(self, token_id: int) -> str:
        """The piece of an id."""

    @abc.abstractmethod
    def token_to_id(self, token: str) -> int | None:
        """The id of a piece, or None."""

    @abc.abstractmethod
    def continuations(self) -> np.ndarray:
        """Where a piece continues a word ("##ing"; no leading "▁"): bool [V].

        Special tokens continue nothing.
        """

    @abc.abstractmethod
    def with_words(self, words: Sequence[str]) -> "Tokenizer":
        """A tokenizer with more words; this one stays as it is.

        Each word is normalised as text is, and becomes one piece: the ids V, V+1, …, in
        the order of `words`. What is in the vocabulary already, or comes twice, is passed over, so
        the new pieces are those from V on. Only whole words: a piece inside words ("##19") would
        give other words other ids.

        Words that do not begin with a new word keep their ids. Those that do are read from it on:
        with "covid", "covids" is "covid", "##s", and is unknown where the rest has no pieces.

        Raises:
            UserError: an empty word; one that text never has in one piece, because it is split
                ("New York", "covid-19") or too long; or a tokenizer that cannot take any.
        """

    @abc.abstractmethod
    def fingerprint(self) -> str:
        """16 hex digits that change whenever any text could get other ids."""

    @abc.abstractmethod
    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes the tokenizer files of a model directory (Hugging Face's layout).

        Args:
            directory: made if it is missing.
            max_length: the most tokens that the model takes, for others that read the files.
        """
