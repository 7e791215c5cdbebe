"""Sentences of words as rows of tokens, none of them cut short: windows that slide over words.

A row is `[CLS] words [SEP]`. A word is known by the first of its tokens, which carries its label
(paper, section 5.3), and is read in one window only: the one where it has most context.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

from bert_jax.data.windows.words import joined
from bert_jax.errors import UserError
from bert_jax.tokenization.interface import Encoding, Tokenizer

SPECIALS = 2  # [CLS] and [SEP]


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
            UserError: there is no room for a word.
        """
        if length <= SPECIALS:
            raise UserError(f"length is {length}; a word needs at least {SPECIALS + 1} tokens")
        self._tokenizer = tokenizer
        self._room = length - SPECIALS
        special = tokenizer.special_ids
        self._cls, self._sep = (
            Encoding([token], [0], [tokenizer.id_to_token(token)], [(0, 0)], [None], [1])
            for token in (special.cls, special.sep)
        )

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The rows of each sentence, at least one; every word that has tokens is read in one."""
        texts = [" ".join(words) for words in sentences]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [
            self._windows(encoding, _words_of_tokens(encoding.offsets, words, text))
            for encoding, words, text in zip(encodings, sentences, texts, strict=True)
        ]

    def _windows(self, tokens: Encoding, word_of: list[int]) -> list[WordWindow]:
        firsts = [
            place for place, word in enumerate(word_of) if not place or word != word_of[place - 1]
        ]
        if len(tokens) <= self._room:
            return [self._window(tokens, word_of, range(len(tokens)), firsts)]
        kept, starts = _shortened(firsts, len(tokens), max(self._room // 2, 1))
        bounds = window_bounds(starts, self._room)
        windows = []
        for (begin, end), (first, last) in zip(bounds, read_in(starts, bounds), strict=True):
            if first < last:
                inside = kept[starts[begin] : starts[end]]
                windows.append(self._window(tokens, word_of, inside, firsts[first:last]))
        return windows

    def _window(
        self, tokens: Encoding, word_of: list[int], inside: Sequence[int], firsts: Sequence[int]
    ) -> WordWindow:
        """A row of some tokens; `firsts` are the first tokens of the words that are read in it."""
        place_of = {token: place for place, token in enumerate(inside, start=1)}
        cls, sep = self._cls, self._sep
        return WordWindow(
            ids=[*cls.ids, *(tokens.ids[token] for token in inside), *sep.ids],
            type_ids=[0] * (len(inside) + SPECIALS),
            tokens=[*cls.tokens, *(tokens.tokens[token] for token in inside), *sep.tokens],
            offsets=[*cls.offsets, *(tokens.offsets[token] for token in inside), *sep.offsets],
            word_ids=[None, *(word_of[token] for token in inside), None],
            special_tokens_mask=[1, *[0] * len(inside), 1],
            words=tuple(word_of[token] for token in firsts),
            positions=tuple(place_of[token] for token in firsts),
        )


def window_bounds(starts: Sequence[int], room: int) -> list[tuple[int, int]]:
    """The windows over words that have tokens.

    Args:
        starts: the first token of each of n words, and the number of all tokens; no word has more
            than half of `room`, or one where that is none.
        room: the most tokens of a window.

    Returns:
        (first word, word after the last) of each window; together they hold every word.
    """
    count, step = len(starts) - 1, room - room // 2
    bounds, begin = [], 0
    while True:
        end = bisect.bisect_right(starts, starts[begin] + room) - 1
        bounds.append((begin, end))
        if end == count:
            return bounds
        begin = bisect.bisect_left(starts, starts[begin] + step)


def read_in(starts: Sequence[int], bounds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which words each window reads, (first, after the last): those with most context in it.

    Two windows share the words in which they overlap at its middle: before it, the right end of
    the earlier window is farther away than the left end of the later one.
    """
    cuts = [0]
    for (_, end), (begin, _) in itertools.pairwise(bounds):
        cut = begin
        while cut < end and starts[cut] - starts[begin] <= starts[end] - starts[cut + 1]:
            cut += 1
        cuts.append(cut)
    cuts.append(len(starts) - 1)
    return list(itertools.pairwise(cuts))


def _words_of_tokens(
    offsets: Sequence[tuple[int, int]], words: Sequence[str], text: str
) -> list[int]:
    """The word that each token begins in; `text` is the words joined by blanks."""
    ends = [word.end for word in joined(words)]
    found = []
    for start, end in offsets:
        # SentencePiece counts the blank before a word to its token, or makes it a token.
        while start < end and text[start] == " ":
            start += 1
        found.append(min(bisect.bisect_right(ends, start), len(words) - 1))
    return found


def _shortened(firsts: Sequence[int], count: int, most: int) -> tuple[list[int], list[int]]:
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
