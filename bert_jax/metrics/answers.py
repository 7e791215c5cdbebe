"""Where a text has an answer to a question, as DPR decides it, and how often passages have one.

A text has an answer if the words of the answer follow each other in it: after canonical
decomposition (NFD) and in lower case, a word is a run of letters, digits and marks, or any other
character except blanks and control characters. So "Café" has neither "cafe" nor "caf".

Source: Karpukhin et al., 2020 (https://arxiv.org/abs/2004.04906), section 5 and its code.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

# A run of letters and digits, or another character; `_words` leaves out control characters.
_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")


class _Word(NamedTuple):
    """A word in lower case, and the characters of the text that it consists of."""

    text: str
    start: int
    stop: int


def has_answer(answers: Iterable[str], text: str) -> bool:
    """Whether a text has one of the answers."""
    return next(find_answers(answers, text), None) is not None


def find_answers(answers: Iterable[str], text: str) -> Iterator[tuple[int, int]]:
    """All places of answers in a text: the first character, and one past the last.

    Ordered by the answers, then by place. An answer without words is nowhere.
    """
    folded, words = unicodedata.normalize("NFD", text).casefold(), None
    for answer in answers:
        expected = [word.text for word in _words(answer)]
        # Most passages lack a word of the answer: no need to split them.
        if not expected or any(word.casefold() not in folded for word in expected):
            continue
        words = words or _words(text)
        for first in range(len(words) - len(expected) + 1):
            candidate = words[first : first + len(expected)]
            if [word.text for word in candidate] == expected:
                yield candidate[0].start, candidate[-1].stop


def retrieval_accuracy(
    has_answer: Sequence[Sequence[bool]], cutoffs: Iterable[int]
) -> dict[str, float]:
    """`accuracy@k` for each k: the percentage of questions with an answer in the first k passages.

    Args:
        has_answer: of one or more questions, whether each retrieved passage has an answer, the best
            passage first.
        cutoffs: values of k.
    """
    return {
        f"accuracy@{k}": 100 * sum(any(row[:k]) for row in has_answer) / len(has_answer)
        for k in cutoffs
    }


def _words(text: str) -> list[_Word]:
    decomposed = unicodedata.normalize("NFD", text)
    origins: Sequence[int] = range(len(text))
    if len(decomposed) > len(text):
        parts = (unicodedata.normalize("NFD", character) for character in text)
        origins = [index for index, part in enumerate(parts) for _ in part]
    spans = (match.span() for match in _WORD.finditer(decomposed.translate(_marks())))
    return [
        _Word(decomposed[start:stop].lower(), origins[start], origins[stop - 1] + 1)
        for start, stop in spans
        if unicodedata.category(decomposed[start])[0] not in "CZ"
    ]


@functools.cache
def _marks() -> dict[int, str]:
    """Replaces marks, which are no letters for regular expressions, by a letter."""
    every = range(sys.maxunicode + 1)
    return {code: "a" for code in every if unicodedata.category(chr(code))[0] == "M"}
