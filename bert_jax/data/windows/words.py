"""Words of sentences: plain text split into words, and words as rows of tokens.

A row is `[CLS] words [SEP]`. A word is represented by its first token, which carries its label
(paper, section 5.3), or by the second where the first is a bare "▁". Windows slide over a sentence
that is too long for a row; each word is read in only one window: the one where it has most context.
"""

import bisect
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.data.windows.ranges import max_context_ranges, window_ranges
from bert_jax.errors import OptionError
from bert_jax.tokenization.encoding import Encoding, Pieces
from bert_jax.tokenization.interface import Tokenizer

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

# Characters of scripts that are written without spaces between words: Thai and Lao, Burmese,
# Khmer, Tai Le to Tai Lue, Tai Tham, Balinese, kana, Bopomofo, Chinese characters and their
# iteration marks, Javanese and Burmese extensions, Tai Viet, narrow kana, and planes of all these.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f"
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)

# The piece of SentencePiece that stands for a space and nothing else.
_SPACE_PIECE = "\u2581"

_SPACE, _ALONE, _INSIDE = range(3)


class Word(NamedTuple):
    """A word and its place in the text.

    Attributes:
        text: the word.
        start: first character of the word in the text.
        end: one past the last character.
    """

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """Splits at white space; each punctuation mark and Chinese character is a word.

    The rule is that of BERT's basic tokenizer, where every ASCII character that is neither letter
    nor digit is punctuation. It does not depend on the model's tokenizer, which may split
    differently.
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


def has_unspaced(text: str) -> bool:
    """Whether a text has characters of a script without spaces between words."""
    return _UNSPACED.search(text) is not None


def piece_words(text: str, tokens: Pieces) -> list[Word]:
    """The words of a text that has such characters: between its spaces there, each piece is one.

    So entities are found as Hugging Face's pipelines find them (`aggregation_strategy="simple"`).
    What stands between spaces without such characters has the words of `split_words`. Characters
    that the tokenizer drops are in no word.

    Args:
        text: the text.
        tokens: its pieces.
    """
    spaced = [
        Word(word.text, run.start() + word.start, run.start() + word.end)
        for run in re.finditer(r"\S+", text)
        if not has_unspaced(run[0])
        for word in split_words(run[0])
    ]
    starts = [word.start for word in spaced]
    words: list[Word] = []
    for token, (start, end) in zip(tokens.tokens, tokens.offsets, strict=True):
        start = _skip_spaces(text, start, end)
        if start == end or token == _SPACE_PIECE:
            continue
        index = bisect.bisect_right(starts, start) - 1
        if index >= 0 and end <= spaced[index].end:
            _, start, end = spaced[index]
        if words and start < words[-1].end:  # a piece of the same word, or of the same character
            last = words.pop()
            start, end = last.start, max(end, last.end)
        words.append(Word(text[start:end], start, end))
    return words


def join_words(words: Sequence[str]) -> list[Word]:
    """The text `" ".join(words)`, as its words with their places."""
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
        # BERT does not treat control characters as punctuation; its tokenizer drops them later.
        return _ALONE if character.isprintable() else _INSIDE
    code = ord(character)
    if unicodedata.category(character).startswith("P"):
        return _ALONE
    return _ALONE if any(first <= code <= last for first, last in _CHINESE) else _INSIDE


@dataclasses.dataclass(frozen=True, slots=True)
class WordWindow(Encoding):
    """A row; its `word_ids` and `offsets` refer to the sentence, its words joined by spaces.

    Attributes:
        words: ascending indices of the words of the sentence that are read in this window. Words
            without tokens are read in no window.
        positions: position in the row of the first token of each of these words, or of the second
            where the first is a bare "▁".
    """

    words: tuple[int, ...]
    positions: tuple[int, ...]


class WordWindows:
    """Encodes sentences as rows.

    A sentence that fits is one row. In a longer one, windows begin at words and about half a window
    apart, so that a word has about a quarter of a window of context on both sides, if the sentence
    has as much. A word with more tokens than half a window is cut to half a window; its first token
    stays.
    """

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        """Takes the maximum number of tokens of a row, T.

        Raises:
            OptionError: a row has no space for a word.
        """
        special = tokenizer.num_special_tokens(pair=False)
        if length <= special:
            raise OptionError("max_length", length, f"a word needs at least {special + 1} tokens")
        self._tokenizer = tokenizer
        self._capacity = length - special

    def __call__(self, sentences: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The rows of each sentence, at least one; each word with tokens is read in exactly one."""
        texts = [" ".join(words) for words in sentences]
        encodings = self._tokenizer.encode_words(texts)
        return [
            self.of_tokens(encoding, join_words(words), text)
            for encoding, words, text in zip(encodings, sentences, texts, strict=True)
        ]

    def of_tokens(self, tokens: Encoding, words: Sequence[Word], text: str) -> list[WordWindow]:
        """The rows of a text that is encoded, without special tokens, and split into words."""
        return self._windows(tokens, _word_ids(tokens.offsets, words, text))

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
        """A row of the tokens `inside`; `firsts` are the first tokens of the words read in it."""
        pieces = Pieces(
            [tokens.ids[token] for token in inside],
            [tokens.tokens[token] for token in inside],
            [tokens.offsets[token] for token in inside],
            [word_ids[token] for token in inside],
        )
        row = self._tokenizer.join([pieces])
        (begin,) = self._tokenizer.template.text_starts([len(pieces)])
        position = {token: begin + index for index, token in enumerate(inside)}

        def deciding(first: int) -> int:
            """The position of the first token of a word that is more than a space."""
            following = first + 1
            is_bare = tokens.tokens[first] == _SPACE_PIECE and following in position
            same_word = is_bare and word_ids[following] == word_ids[first]
            return position[following if same_word else first]

        return WordWindow(
            **vars(row),
            words=tuple(word_ids[token] for token in firsts),
            positions=tuple(map(deciding, firsts)),
        )


def _word_ids(offsets: Sequence[tuple[int, int]], words: Sequence[Word], text: str) -> list[int]:
    """The word that each token begins in."""
    ends = [word.end for word in words]
    starts = (_skip_spaces(text, start, end) for start, end in offsets)
    return [min(bisect.bisect_right(ends, start), len(words) - 1) for start in starts]


def _skip_spaces(text: str, start: int, end: int) -> int:
    """The start of a token without spaces: it may include the one before a word, or be that one."""
    while start < end and text[start].isspace():
        start += 1
    return start


def _shorten(firsts: Sequence[int], count: int, most: int) -> tuple[list[int], list[int]]:
    """The kept tokens if no word may have more than `most`, and the new first tokens of words.

    Args:
        firsts: first token of each word that has any.
        count: number of tokens.
        most: maximum number of tokens of a word.
    """
    kept: list[int] = []
    starts = []
    for first, following in zip(firsts, [*firsts[1:], count], strict=True):
        starts.append(len(kept))
        kept.extend(range(first, min(following, first + most)))
    return kept, [*starts, len(kept)]
