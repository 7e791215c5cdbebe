"""Joins the pieces of one text or two with their special tokens, cut to a length.

Both kinds of tokenizer share this: they turn text into pieces, and the rest happens in this module,
so that a limit of one call never stays in a library object, where the next call would use it.
"""

import abc
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.tokenization.interface import TOKEN_KEYS, Encoding, Pieces, Tokenizer
from bert_jax.tokenization.settings import CONFIG_FILE
from bert_jax.tokenization.special_tokens import SpecialTokens, Token

TRUNCATIONS = ("longest_first", "only_first", "only_second")


def check_texts(texts: Sequence[str]) -> None:
    """Refuses input that is not a list of Unicode texts, and names the item.

    Raises:
        UserError: a single string instead of a list, an item that is not a string, or half of a
            surrogate pair (which JSON can contain).
    """
    if isinstance(texts, str):
        raise UserError("tokenizer: the texts are one string; give a list of strings")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"tokenizer: text {index} is {text!r}; give a string")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"tokenizer: text {index}, character {error.start}: "
                    f"U+{ord(text[error.start]):04X} is half of a surrogate pair, not a character; "
                    "remove it"
                ) from None


def check_request(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int | None,
    truncation: str,
    add_special_tokens: bool,
) -> None:
    """Refuses arguments that no text could satisfy, before any text is encoded.

    Raises:
        UserError: see `Tokenizer.encode_batch`.
    """
    check_texts(texts)
    if pairs is not None:
        check_texts(pairs)
    if pairs is not None and len(texts) != len(pairs):
        raise UserError(
            f"encode_batch: {len(texts)} texts but {len(pairs)} pairs; give one pair for each text"
        )
    require_one_of("truncation", truncation, TRUNCATIONS)
    if max_length is None:
        return
    if truncation == "only_second" and pairs is None:
        raise OptionError("truncation", truncation, "there are no pairs: give {pairs}, too")
    least = 1 + _special_count(tokenizer, pairs is not None, add_special_tokens)
    if max_length < least:
        rule = f"it leaves no space beside the special tokens: give at least {least}"
        raise OptionError("max_length", max_length, rule)


def assemble_batch(
    tokenizer: Tokenizer,
    firsts: Sequence[Pieces],
    seconds: Sequence[Pieces] | None,
    max_length: int | None,
    truncation: str,
    add_special_tokens: bool,
) -> list[Encoding]:
    """Cuts each text (and pair) and joins it with its special tokens.

    Raises:
        UserError: cutting only the first or only the second text cannot reach `max_length`.
    """
    special_count = _special_count(tokenizer, seconds is not None, add_special_tokens)
    encodings = []
    for index, first in enumerate(firsts):
        parts = [first] if seconds is None else [first, seconds[index]]
        if max_length is not None:
            limit = max_length - special_count
            lengths = truncated_lengths([len(part) for part in parts], limit, truncation)
            if lengths is None:
                raise UserError(
                    f"encode_batch: item {index} has {' + '.join(str(len(p)) for p in parts)} "
                    f"tokens; {truncation!r} cannot bring them to max_length {max_length}; "
                    "use truncation 'longest_first' or a larger max_length"
                )
            is_left = tokenizer.truncation_side == "left"
            starts = [(len(part) - n) * is_left for part, n in zip(parts, lengths, strict=True)]
            parts = [
                part.part(start, start + n)
                for part, start, n in zip(parts, starts, lengths, strict=True)
            ]
        encodings.append(join_texts(tokenizer, parts, add_special_tokens=add_special_tokens))
    return encodings


class AssemblingTokenizer(Tokenizer):
    """A tokenizer that turns texts into pieces, which this module joins."""

    _tokens: SpecialTokens
    _pieces: list[str]
    # How pieces begin that begin a word.
    _word_markers: tuple[str, ...]

    def id_to_token(self, token_id: int) -> str:
        return self._pieces[token_id]

    def continuations(self) -> np.ndarray:
        """See `Tokenizer.continuations`: the pieces that begin with no marker of a word."""
        found = np.array([not piece.startswith(self._word_markers) for piece in self._pieces])
        found[self.special_ids.known()] = False
        return found

    def _write_config(
        self, directory: Path, class_name: str, rules: Mapping[str, object], max_length: int | None
    ) -> None:
        """Writes `tokenizer_config.json`.

        Args:
            directory: a directory.
            class_name: Hugging Face's class, for a tokenizer whose files named none.
            rules: further keys.
            max_length: see `Tokenizer.save`.
        """
        names = zip(TOKEN_KEYS, self._tokens.names, strict=True)
        config = {
            "tokenizer_class": self.settings.class_name or class_name,
            **rules,
            **{key: name for key, name in names if name},
        }
        content = json.dumps(self.settings.saved(config, max_length), indent=2)
        (directory / CONFIG_FILE).write_text(f"{content}\n", encoding="utf-8")

    @abc.abstractmethod
    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """The pieces of each text; a literal "[MASK]" becomes the special token."""

    @abc.abstractmethod
    def _with_tokens(self, tokens: Sequence[Token]) -> Self:
        """This tokenizer with more added tokens; this one is not changed."""

    def _with_pieces(self, words: Sequence[str]) -> Self:
        """This tokenizer with more words, without `whole`, see `Tokenizer.with_words`."""
        raise UserError(
            "words: a SentencePiece model cannot take new words, which have no learned scores; add "
            "them as markers (whole=True), which are found wherever they stand, or train a new one"
        )

    def with_words(self, words: Sequence[str], *, whole: bool = False) -> Self:
        """See `Tokenizer.with_words`."""
        check_texts(words)
        words = list(dict.fromkeys(words))
        if not whole:
            return self._with_pieces(words)
        for word in words:
            if not word.strip():
                raise UserError(f"words: nothing is left of {word!r}; remove it")
        # A piece of the vocabulary, such as "[unused1]", is not found before the text is split.
        found = {token.content for token in self._tokens.all()}
        new = [word for word in words if word not in found or self.token_to_id(word) is None]
        return self._with_tokens([Token(word, special=False) for word in new])

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncation: str = "longest_first",
        add_special_tokens: bool = True,
    ) -> list[Encoding]:
        """See `Tokenizer.encode_batch`.

        A literal "[MASK]" in a text becomes the special token, as `fill_mask` requires.
        """
        check_request(self, texts, pairs, max_length, truncation, add_special_tokens)
        firsts = self.to_pieces(texts)
        seconds = None if pairs is None else self.to_pieces(pairs)
        return assemble_batch(self, firsts, seconds, max_length, truncation, add_special_tokens)


def truncated_lengths(lengths: Sequence[int], limit: int, truncation: str) -> list[int] | None:
    """The number of tokens of each text to keep so that the sum is at most `limit`.

    "longest_first" cuts the longer text until both are equally long, then both; if the limit is
    odd the longer text (the second of two equal ones) keeps one more, as in Hugging Face's
    tokenizers. (Pre-training cuts at random ends, see `bert_jax.data.pretraining.pairs`.)

    Args:
        lengths: number of tokens of the text, or of the text and its pair.
        limit: maximum number of tokens of both together, without special tokens.
        truncation: one of `TRUNCATIONS`.

    Returns:
        As many lengths, or None if cutting only one text would leave nothing of it.
    """
    if sum(lengths) <= limit:
        return list(lengths)
    if len(lengths) == 1:
        return [limit]
    first, second = lengths
    if truncation == "only_first":
        return [limit - second, second] if limit > second else None
    if truncation == "only_second":
        return [first, limit - first] if limit > first else None
    shorter = min(first, second, limit // 2)
    longer = limit - shorter
    return [longer, shorter] if first > second else [shorter, longer]


def _special_count(tokenizer: Tokenizer, pair: bool, add_special_tokens: bool) -> int:
    return tokenizer.num_special_tokens(pair=pair) if add_special_tokens else 0


def join_texts(
    tokenizer: Tokenizer, texts: Sequence[Pieces], *, add_special_tokens: bool = True
) -> Encoding:
    """One text or two with the special tokens and token types of the tokenizer's template.

    Args:
        tokenizer: tokenizer that defines template and ids.
        texts: pieces of the texts, without special tokens.
        add_special_tokens: False for the texts only.
    """
    joined = Encoding([], [], [], [], [], [])
    for name, type_id in tokenizer.template.parts(pair=len(texts) == 2):
        if name in "AB":
            text = texts["AB".index(name)]
            joined.ids.extend(text.ids)
            joined.type_ids.extend([type_id] * len(text))
            joined.tokens.extend(text.tokens)
            joined.offsets.extend(text.offsets)
            joined.word_ids.extend(text.word_ids)
            joined.special_tokens_mask.extend([0] * len(text))
        elif add_special_tokens:
            token_id = tokenizer.template_id(name)
            joined.ids.append(token_id)
            joined.type_ids.append(type_id)
            joined.tokens.append(tokenizer.id_to_token(token_id))
            joined.offsets.append((0, 0))
            joined.word_ids.append(None)
            joined.special_tokens_mask.append(1)
    return joined


def text_starts(tokenizer: Tokenizer, lengths: Sequence[int]) -> list[int]:
    """The position of the first token of each text in the result of `join_texts`.

    Args:
        tokenizer: tokenizer that defines the template.
        lengths: number of tokens of one text, or of two.
    """
    return [start for part, start in tokenizer.template.starts(lengths) if part.name in "AB"]
