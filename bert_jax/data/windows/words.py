"""Words of sentences: plain text split into words, and words as rows of tokens.

A row is `[CLS] words [SEP]`. A word is represented by its first token, which carries its label
(paper, section 5.3), or by the next where that is a space, such as a bare "▁". Windows slide over a
sentence that is too long for a row; each word is read in only one window, where it has most
context.
"""

import bisect
import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Regex, pre_tokenizers

from bert_jax.data.windows import max_context_ranges, window_ranges
from bert_jax.errors import OptionError
from bert_jax.tokenization.encoding import Encoding, Pieces, check_texts
from bert_jax.tokenization.interface import Tokenizer

# The words of BERT's basic tokenizer. White space includes the separators U+001C to U+001F; each
# punctuation mark is a word, and each Chinese character (google-research/bert, tokenization.py).
_BASIC = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r"[\s\x1c-\x1f]+"), "removed"),
        pre_tokenizers.Punctuation("isolated"),
        pre_tokenizers.Split(
            Regex(
                r"[\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{2a6df}"
                r"\x{2a700}-\x{2ceaf}\x{2f800}-\x{2fa1f}]"
            ),
            "isolated",
        ),
    ]
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

# SentencePiece's piece for a space and nothing else.
_SPACE_PIECE = "\u2581"


class Word(NamedTuple):
    """A word and its characters in the text.

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

    The rule of BERT's basic tokenizer, where every ASCII character that is neither letter
    nor digit is punctuation. It does not depend on the model's tokenizer, which may split
    differently.

    Raises:
        UserError: the text has half of a surrogate pair.
    """
    check_texts([text])
    return [Word(word, start, end) for word, (start, end) in _BASIC.pre_tokenize_str(text)]


def has_unspaced(text: str) -> bool:
    """Whether a text has characters of a script without spaces between words."""
    return _UNSPACED.search(text) is not None


def piece_words(text: str, tokens: Pieces, *, whole: bool) -> list[Word]:
    """The words of a text: a word for each piece, as in Hugging Face's pipelines.

    These are pipelines with `aggregation_strategy="simple"`. Characters that the tokenizer drops
    are in no word, nor is a piece of spaces alone.

    Args:
        text: the text.
        tokens: its pieces.
        whole: whether runs of characters without spaces have the words of `split_words`, unless one
            is of a script without spaces between words, see `has_unspaced`.
    """
    spaced = [
        Word(word.text, run.start() + word.start, run.start() + word.end)
        for run in re.finditer(r"\S+", text)
        if whole and not has_unspaced(run[0])
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
    """The words of the text `" ".join(words)`."""
    joined, start = [], 0
    for word in words:
        joined.append(Word(word, start, start + len(word)))
        start += len(word) + 1
    return joined


@dataclasses.dataclass(frozen=True, slots=True)
class WordWindow(Encoding):
    """A row; its `word_ids` and `offsets` refer to the sentence, its words joined by spaces.

    Attributes:
        words: ascending indices of the words of the sentence that are read in this window. Words
            without tokens are read in no window.
        positions: position in the row of the first token of each of these words that is more than
            a space; of the first where the row has no other.
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
            self._rows(encoding, join_words(words), text, is_given=True)
            for encoding, words, text in zip(encodings, sentences, texts, strict=True)
        ]

    def from_tokens(self, tokens: Encoding, words: Sequence[Word], text: str) -> list[WordWindow]:
        """The rows of a text that is encoded, without special tokens, and split into words."""
        return self._rows(tokens, words, text, is_given=False)

    def _rows(
        self, tokens: Encoding, words: Sequence[Word], text: str, *, is_given: bool
    ) -> list[WordWindow]:
        word_ids = _word_ids(tokens.offsets, words, text)
        deciding = _deciding(tokens, word_ids, text, is_given=is_given)

        def window(inside: Sequence[int], firsts: Sequence[int]) -> WordWindow:
            """A row of tokens; `firsts` are the first tokens of the words read in it."""
            pieces = Pieces(
                [tokens.ids[token] for token in inside],
                [tokens.tokens[token] for token in inside],
                [tokens.offsets[token] for token in inside],
                [word_ids[token] for token in inside],
            )
            row = self._tokenizer.join([pieces])
            (begin,) = self._tokenizer.template.text_starts([len(pieces)])
            position = {token: begin + index for index, token in enumerate(inside)}
            return WordWindow(
                **vars(row),
                words=tuple(word_ids[token] for token in firsts),
                positions=tuple(position.get(deciding[first], position[first]) for first in firsts),
            )

        firsts = [  # the first token of each word that has any
            token for token, word in enumerate(word_ids) if not token or word != word_ids[token - 1]
        ]
        capacity = self._capacity
        if len(tokens) <= capacity:
            return [window(range(len(tokens)), firsts)]
        kept, starts = _shorten(firsts, len(tokens), max(capacity // 2, 1))
        ranges = window_ranges(starts, capacity, capacity - capacity // 2)
        return [
            window(kept[starts[begin] : starts[end]], read)
            for (begin, end), (first, last) in zip(
                ranges, max_context_ranges(starts, ranges), strict=True
            )
            if (read := firsts[first:last])
        ]


def _word_ids(offsets: Sequence[tuple[int, int]], words: Sequence[Word], text: str) -> list[int]:
    """The word that each token begins in."""
    ends = [word.end for word in words]
    starts = (_skip_spaces(text, start, end) for start, end in offsets)
    return [min(bisect.bisect_right(ends, start), len(words) - 1) for start in starts]


def _deciding(tokens: Pieces, word_ids: Sequence[int], text: str, *, is_given: bool) -> list[int]:
    """For each token the next one of its word that is more than a space, if there is one.

    A byte-level "Ġ" before a word that is given, not found in a text, decides: where transformers
    trains on words, it has the label.
    """
    deciding = list(range(len(tokens)))
    for token in reversed(deciding[:-1]):
        start, end = tokens.offsets[token]
        is_bare = tokens.tokens[token] == _SPACE_PIECE or (
            not is_given and not text[start:end].strip()
        )
        if is_bare and word_ids[token + 1] == word_ids[token]:
            deciding[token] = deciding[token + 1]
    return deciding


def _skip_spaces(text: str, start: int, end: int) -> int:
    """The start of a token without the space before a word; the space may be the whole token."""
    while start < end and text[start].isspace():
        start += 1
    return start


def _shorten(firsts: Sequence[int], count: int, most: int) -> tuple[list[int], list[int]]:
    """The tokens to keep if no word may have more than `most`, and the new first ones of words.

    `firsts` are the first ones of words among all, the `count` tokens.
    """
    kept: list[int] = []
    starts = []
    for first, following in zip(firsts, [*firsts[1:], count], strict=True):
        starts.append(len(kept))
        kept.extend(range(first, min(following, first + most)))
    return kept, [*starts, len(kept)]
