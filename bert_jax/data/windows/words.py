"""Words of a plain text, for models that read words: split as BERT splits text before pieces."""

import functools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

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
    """A word and where it stands.

    Attributes:
        text: the word.
        start: its first character in the text.
        end: the character after its last.
    """

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """Words between white space; each punctuation mark and Chinese character is one of its own.

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


def joined(words: Sequence[str]) -> list[Word]:
    """Given words, where they stand when blanks join them."""
    found, start = [], 0
    for word in words:
        found.append(Word(word, start, start + len(word)))
        start += len(word) + 1
    return found


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
