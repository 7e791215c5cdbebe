"""Words of sentences: plain text split into words, and words as rows of tokens.

A row is `[CLS] words [SEP]`. A word is known by the first of its tokens, which carries its label
(paper, section 5.3). Windows slide over a sentence that is too long for a row; a word is read in
one window only: the one where it has most context.
"""

import bisect
import dataclasses
import functools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.data.windows.ranges import max_context_ranges, window_ranges
from bert_jax.errors import OptionError
from bert_jax.tokenization import Encoding, Tokenizer
from bert_jax.tokenization.assembly import Pieces, join_texts, text_starts

# Blocks of Chinese characters, of which each is a word (google-research/bert, tokenization.py).
_CHINESE = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)

_SPACE, _ALONE, _INSIDE = range(3)


class Word(NamedTuple):
    """A word and its place in the text.

    Attributes:
        text: the word.
        start: its first character in the text.
        end: one past its last.
    """

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """Words between white space; each punctuation mark and Chinese character is a word.

    The rule is that of BERT's basic tokenizer, which counts all of ASCII that is neither letter nor
    digit as punctuation. It does not depend on a model's tokenizer, which may split otherwise.
    """
    words = []
    start = -1
    for position, character in enumerate(text):
        kind = _kind(character)
        if kind == _INSIDE:
            start = position if start < 0 else start
            continue
        if start >= 0:
            words.append(Word(text[start:position], start, position))
            start = -1
        if kind == _ALONE:
            words.append(Word(character, position, position + 1))
    if start >= 0:
        words.append(Word(text[start:], start, len(text)))
    return words


def join_words(words: Sequence[str]) -> list[Word]:
    """Words, and their places in `" ".join(words)`."""
    joined, start = [], 0
    for word in words:
        joined.append(Word(word, start, start + len(word)))
        start += len(word) + 1
    return joined


@functools.lru_cache(maxsize=1 << 16)
def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    if character.isalnum() and ord(character) < 0x3400:
        return _INSIDE
    if character.isascii():
        # Control characters are none of BERT's punctuation; they vanish later.
        return _ALONE if character.isprintable() else _INSIDE
    code = ord(character)
    if unicodedata.category(character).startswith("P"):
        return _ALONE
    return _ALONE if any(first <= code <= last for first, last in _CHINESE) else _INSIDE


@dataclasses.dataclass(frozen=True, slots=True)
class WordWindow(Encoding):
    """A row; its `word_ids` and `offsets` are those of the sentence, its words joined by blanks.

    Attributes:
        words: those that are read here, ascending numbers of words of the sentence. A word of which
            the tokenizer leaves nothing is read nowhere.
        positions: where the first token of each of them stands in the row.
    """

    words: tuple[int, ...]
    positions: tuple[int, ...]


class WordWindows:
    """Makes the rows of sentences.

    A sentence that fits is one row. Of a longer one, each window begins half a window after the one
    before, at a word, so that a word has about a quarter of a window on both sides where the
    sentence has as much. A word of more tokens than half a window is cut to these: its
    first token stays.
    """

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        """Takes the most tokens of a row, T.

        Raises:
            OptionError: there is no space for a word.
        """
        special = tokenizer.num_special_tokens(pair=False)
        if length <= special:
            raise OptionError("length", length, f"a word needs at least {special + 1} tokens")
        self._tokenizer = tokenizer
        self._capacity = length - special

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The rows of each sentence, at least one; every word that has tokens is read in one."""
        texts = [" ".join(words) for words in sentences]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [
            self._windows(encoding, _word_ids(encoding.offsets, words, text))
            for encoding, words, text in zip(encodings, sentences, texts, strict=True)
        ]

    def _windows(self, tokens: Encoding, word_ids: list[int]) -> list[WordWindow]:
        firsts = [  # the first token of each word that has any
            token for token, word in enumerate(word_ids) if not token or word != word_ids[token - 1]
        ]
        capacity = self._capacity
        if len(tokens) <= capacity:
            return [self._window(tokens, word_ids, range(len(tokens)), firsts)]
        kept, starts = _shorten(firsts, len(tokens), max(capacity // 2, 1))
        ranges = window_ranges(starts, capacity, capacity - capacity // 2)
        return [
            self._window(tokens, word_ids, kept[starts[begin] : starts[end]], firsts[first:last])
            for (begin, end), (first, last) in zip(
                ranges, max_context_ranges(starts, ranges), strict=True
            )
            if first < last
        ]

    def _window(
        self, tokens: Encoding, word_ids: list[int], inside: Sequence[int], firsts: Sequence[int]
    ) -> WordWindow:
        """A row of the tokens `inside`; `firsts` begin the words that are read in it."""
        pieces = Pieces(
            [tokens.ids[token] for token in inside],
            [tokens.tokens[token] for token in inside],
            [tokens.offsets[token] for token in inside],
            [word_ids[token] for token in inside],
        )
        row = join_texts(self._tokenizer, [pieces])
        (begin,) = text_starts(self._tokenizer, [len(pieces)])
        position = {token: begin + index for index, token in enumerate(inside)}
        return WordWindow(
            **{field.name: getattr(row, field.name) for field in dataclasses.fields(Encoding)},
            words=tuple(word_ids[token] for token in firsts),
            positions=tuple(position[token] for token in firsts),
        )


def _word_ids(offsets: Sequence[tuple[int, int]], words: Sequence[str], text: str) -> list[int]:
    """The word that each token begins in; `text` is the words joined by blanks."""
    ends = [word.end for word in join_words(words)]
    numbers = []
    for start, end in offsets:
        # SentencePiece counts the blank before a word to its token, or makes it a token.
        while start < end and text[start] == " ":
            start += 1
        numbers.append(min(bisect.bisect_right(ends, start), len(words) - 1))
    return numbers


def _shorten(firsts: Sequence[int], count: int, most: int) -> tuple[list[int], list[int]]:
    """The tokens that are kept when no word has more than `most`, and where words begin in them.

    Args:
        firsts: the first token of each word that has any.
        count: of all tokens.
        most: the most tokens of a word.
    """
    kept: list[int] = []
    starts = []
    for first, following in zip(firsts, [*firsts[1:], count], strict=True):
        starts.append(len(kept))
        kept.extend(range(first, min(following, first + most)))
    return kept, [*starts, len(kept)]
