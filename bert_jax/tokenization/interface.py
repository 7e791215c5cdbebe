"""What every tokenizer can do, whatever model stands behind it."""

import abc
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the five special tokens of BERT (paper, section 3)."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


@dataclasses.dataclass(frozen=True, slots=True)
class Encoding:
    """One encoded text or pair; all lists have the same length T.

    Attributes:
        ids: token ids.
        type_ids: 0 for the first text and its [CLS] and [SEP], 1 for the second and its [SEP].
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
    """

    special_ids: SpecialIds
    vocab_size: int

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
        """Encodes texts, or texts with their pairs, as `[CLS] text [SEP] (pair [SEP])`.

        Args:
            texts: B texts.
            pairs: None, or B second texts.
            max_length: the most tokens of one encoding, special tokens counted; None for no limit.
            truncation: "longest_first", "only_first" or "only_second": where tokens are removed.
            add_special_tokens: whether [CLS] and [SEP] are put around the texts.

        Returns:
            B encodings, unpadded.

        Raises:
            UserError: `max_length` leaves no room, or lengths of `texts` and `pairs` differ.
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
        """A tokenizer that knows more words; this one stays as it is.

        Each word is normalised as text is, and becomes one piece of its own: the ids V, V+1, …, in
        the order of `words`. What is in the vocabulary already, or comes twice, is passed over, so
        the new pieces are those from V on. Only whole words: a piece inside words ("##19") would
        give other words other ids, and has no meaning of its own to begin with.

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
