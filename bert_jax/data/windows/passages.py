"""A question and its passage as rows of tokens: windows that slide over a long passage.

A row is `[CLS] question [SEP] part of the passage [SEP]`. `step` is what google-research/bert calls
`doc_stride`: number of tokens from the start of a window to the next start. Hugging Face's argument
of the same name is the overlap of two windows: `step` = length - question tokens - 3 - overlap.
"""

import bisect
import dataclasses
import functools
import unicodedata
from collections.abc import Sequence

from bert_jax.data.examples import GoldAnswer
from bert_jax.data.windows import Range, max_context_ranges, window_ranges
from bert_jax.errors import OptionError, UserError
from bert_jax.tokenization.encoding import Encoding
from bert_jax.tokenization.interface import Tokenizer

# run_squad.py of google-research/bert prefers long windows by this much per token.
_LENGTH_BONUS = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class PassageWindow(Encoding):
    """A row; its offsets are characters of the question, then characters of the passage.

    Attributes:
        first: index in the passage of the first passage token of the row.
        positions: (start, stop), range of the passage tokens in the row.
        max_context: (start, stop), positions of the tokens that have more context in this window
            than in any other: an answer that begins with one of them is read from this window.
        passage: all tokens of the passage, without special tokens.
        is_cut: whether the question was longer than `PassageWindows.question_limit`.
    """

    first: int
    positions: Range
    max_context: Range
    passage: Encoding
    is_cut: bool

    def answer_positions(self, tokens: tuple[int, int] | None) -> tuple[int, int]:
        """Positions in this row of the first and the last token of an answer.

        Args:
            tokens: indices of these two tokens in the passage, see `token_span`; None: no answer.

        Returns:
            Two positions; (0, 0), which is [CLS], if the window does not contain the whole answer.
        """
        start, stop = self.positions
        if tokens is None:
            return 0, 0
        first, last = (token - self.first + start for token in tokens)
        return (first, last) if start <= first <= last < stop else (0, 0)


class PassageWindows:
    """Cuts passages into windows, each passage tokenised once.

    Attributes:
        tokenizer: tokenizer of the model.
        question_limit: maximum number of tokens of a question, at most half of a row.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int = 384,
        step: int = 128,
        question_length: int = 64,
        most_tokens: int | None = None,
    ) -> None:
        """A rule for one length.

        Args:
            tokenizer: tokenizer of the model.
            length: T, maximum number of tokens of a row.
            step: tokens from the start of a window to the next start. If that would leave no
                overlap, half a window is used instead.
            question_length: maximum number of tokens of a question; the rest of it is cut.
            most_tokens: maximum number of tokens in all windows of a passage; None: no limit.

        Raises:
            OptionError: a row has no space for a question and a passage.
        """
        self.tokenizer, self._most_tokens = tokenizer, most_tokens
        self._step = step
        self._capacity = length - tokenizer.num_special_tokens(pair=True)
        if self._capacity < 2:
            least = length - self._capacity + 2
            raise OptionError(
                "max_length", length, f"a question and a passage need at least {least} tokens"
            )
        self.question_limit = min(question_length, self._capacity // 2)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[list[PassageWindow]]:
        """The windows of each question and passage, at least one; every token is in a window.

        Raises:
            UserError: windows of a passage have more than `most_tokens`; none was made.
        """
        passages = {passage: number for number, (_, passage) in enumerate(pairs)}
        tokens_of = dict(zip(passages, self._tokenize(list(passages)), strict=True))
        questions = self._tokenize([question for question, _ in pairs])
        return [
            self._windows(question, tokens_of[passage])
            for question, (_, passage) in zip(questions, pairs, strict=True)
        ]

    def _tokenize(self, texts: list[str]) -> list[Encoding]:
        return self.tokenizer.encode_batch(texts, add_special_tokens=False)

    def _windows(self, whole: Encoding, passage: Encoding) -> list[PassageWindow]:
        question = whole.part(0, self.question_limit)
        capacity = self._capacity - len(question)
        step = self._step if self._step < capacity else max(capacity // 2, 1)
        count = 1 + max(0, -(-(len(passage) - capacity) // step))
        total = len(passage) + (count - 1) * (capacity - step)
        if self._most_tokens is not None and total > self._most_tokens:
            raise UserError(
                f"a passage has {total:,} tokens in {count:,} windows, and at most "
                f"{self._most_tokens:,} are read; shorten it, or let windows overlap less"
            )
        starts = range(len(passage) + 1)  # each token is a unit
        ranges = window_ranges(starts, capacity, step)
        windows = []
        for (start, stop), read in zip(
            ranges, max_context_ranges(starts, ranges, _LENGTH_BONUS), strict=True
        ):
            row = self.tokenizer.join([question, passage.part(start, stop)])
            _, begin = self.tokenizer.template.text_starts([len(question), stop - start])
            windows.append(
                PassageWindow(
                    **vars(row),
                    first=start,
                    positions=(begin, begin + stop - start),
                    max_context=(read[0] - start + begin, read[1] - start + begin),
                    passage=passage,
                    is_cut=len(whole) > self.question_limit,
                )
            )
        return windows


def token_span(tokens: Encoding, start: int, stop: int) -> tuple[int, int] | None:
    """The first and the last of the fewest tokens that cover characters `start` … `stop - 1`.

    None if no token covers any of them: white space, or characters that the tokenizer drops.
    """
    first = bisect.bisect_right(tokens.offsets, start, key=lambda offset: offset[1])
    last = bisect.bisect_left(tokens.offsets, stop, key=lambda offset: offset[0]) - 1
    return (first, last) if first <= last else None


@dataclasses.dataclass(frozen=True)
class GoldSpan:
    """Characters of a passage, `passage[start:stop]`.

    Attributes:
        start: first character.
        stop: one past the last character.
        is_stated: whether the file states this start; otherwise the answer was searched for.
    """

    start: int
    stop: int
    is_stated: bool


def find_answer(passage: str, answer: GoldAnswer) -> GoldSpan | None:
    """Finds a gold answer: at the stated start, else nearby, else in another spelling.

    Of several occurrences, the nearest to the stated start is used. If there is none, all white
    space (including U+00A0 and U+202F) and all compatible forms of a character (é as one or as two,
    ﬁ, ½) are treated as equal.

    Returns:
        The span; None if the passage does not contain the answer.
    """
    stop = answer.start + len(answer.text)
    if answer.start >= 0 and passage[answer.start : stop] == answer.text:
        return GoldSpan(answer.start, stop, is_stated=True)
    start = _nearest(passage, answer.text, answer.start)
    if start is not None:
        return GoldSpan(start, start + len(answer.text), is_stated=False)
    text, _ = _folded(answer.text)
    text = text.strip(" ")
    folded, origins = _folded(passage)
    near = bisect.bisect_left(origins, answer.start)
    start = _nearest(folded, text, near) if text else None
    if start is None:
        return None
    return GoldSpan(origins[start], origins[start + len(text) - 1] + 1, is_stated=False)


def _nearest(passage: str, text: str, start: int) -> int | None:
    """The start of the occurrence that begins nearest to another start."""
    start = max(start, 0)
    starts = (passage.rfind(text, 0, start + len(text)), passage.find(text, start))
    return min((at for at in starts if at >= 0), key=lambda at: abs(at - start), default=None)


@functools.lru_cache(maxsize=8)  # several questions are about the same passage
def _folded(text: str) -> tuple[str, list[int]]:
    """A text in compatible decomposition with single spaces, and the index of each character."""
    characters: list[str] = []
    origins: list[int] = []
    for index, character in enumerate(text):
        if character.isspace():
            if characters and characters[-1] == " ":
                continue
            character = " "
        for part in unicodedata.normalize("NFKD", character):
            characters.append(part)
            origins.append(index)
    return "".join(characters), origins
