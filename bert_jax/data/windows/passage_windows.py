"""A question and its passage as rows of tokens: windows that slide over a long passage.

A row is `[CLS] question [SEP] part of the passage [SEP]`. `step` is what google-research/bert calls
`doc_stride`: how many tokens a window begins after the one before it. Hugging Face's argument of
the same name is the overlap of two windows: `step` = length - question tokens - 3 - overlap.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import OptionError, UserError
from bert_jax.tokenization.interface import Encoding, Tokenizer

SPECIALS = 3  # [CLS], and [SEP] twice


@dataclasses.dataclass(frozen=True)
class WindowOptions:
    """How a passage is cut.

    Attributes:
        length: the most tokens of a row, T.
        step: tokens from the begin of a window to the begin of the next. One that would leave no
            overlap (the windows hold no more tokens) is taken as half a window.
        question_length: the most tokens of a question; the rest of it is cut. A question never
            takes more than half of a row.
    """

    length: int = 384
    step: int = 128
    question_length: int = 64

    def __post_init__(self) -> None:
        if self.length < SPECIALS + 2:
            raise UserError(
                f"length is {self.length}; a question and a passage need at least {SPECIALS + 2}"
            )
        for name in ("step", "question_length"):
            if getattr(self, name) < 1:
                raise OptionError(name, getattr(self, name), "it must be at least 1")

    @property
    def question_limit(self) -> int:
        """The most tokens of a question."""
        return min(self.question_length, (self.length - SPECIALS) // 2)


@dataclasses.dataclass(frozen=True, slots=True)
class PassageWindow(Encoding):
    """A row; offsets of its question are characters of the question, the others of the passage.

    Attributes:
        begin: the position of its first token of the passage.
        first: which token of the passage that is.
        best: (start, stop), positions of the tokens that have more context here than in any other
            window: an answer that begins with one of them is read here.
        passage: all tokens of the passage, without special tokens.
    """

    begin: int
    first: int
    best: tuple[int, int]
    passage: Encoding

    def positions(self, tokens: tuple[int, int]) -> tuple[int, int]:
        """Where the first and the last token of an answer stand in this row.

        Args:
            tokens: numbers of two tokens of the passage, see `token_span`.

        Returns:
            Two positions; (0, 0), which is [CLS], if one of them is not in this window.
        """
        first, last = (token - self.first + self.begin for token in tokens)
        if self.begin <= first <= last < len(self) - 1:
            return first, last
        return 0, 0


class PassageWindows:
    """Cuts passages into windows, each passage tokenised once.

    Attributes:
        count: questions so far.
        cut_questions: how many of them were longer than `WindowOptions.question_limit`.
    """

    def __init__(self, tokenizer: Tokenizer, options: WindowOptions) -> None:
        """Begins to count."""
        self.count = self.cut_questions = 0
        self._tokenizer = tokenizer
        self._options = options
        special = tokenizer.special_ids
        self._cls = _special(tokenizer, special.cls)
        self._sep = _special(tokenizer, special.sep)

    def __call__(self, asked: Sequence[tuple[str, str]]) -> list[list[PassageWindow]]:
        """The windows of each question and passage, at least one; every token is in one."""
        passages = {passage: number for number, (_, passage) in enumerate(asked)}
        tokenized = self._tokenized(list(passages))
        tokens_of = dict(zip(passages, tokenized, strict=True))
        questions = self._tokenized([question for question, _ in asked])
        limit = self._options.question_limit
        self.count += len(asked)
        self.cut_questions += sum(len(question) > limit for question in questions)
        return [
            self._windows(question, tokens_of[passage])
            for question, (_, passage) in zip(questions, asked, strict=True)
        ]

    def _tokenized(self, texts: list[str]) -> list[Encoding]:
        return self._tokenizer.encode_batch(texts, add_special_tokens=False)

    def _windows(self, question: Encoding, passage: Encoding) -> list[PassageWindow]:
        question = _slice(question, 0, self._options.question_limit)
        room = self._options.length - SPECIALS - len(question)
        spans = window_spans(len(passage), room, self._options.step)
        head = _join([self._cls, question, self._sep], type_id=0)
        windows = []
        for (start, stop), best in zip(spans, best_ranges(spans), strict=True):
            tail = _join([_slice(passage, start, stop), self._sep], type_id=1)
            shift = len(head) - start
            windows.append(
                PassageWindow(
                    head.ids + tail.ids,
                    head.type_ids + tail.type_ids,
                    head.tokens + tail.tokens,
                    head.offsets + tail.offsets,
                    head.word_ids + tail.word_ids,
                    head.special_tokens_mask + tail.special_tokens_mask,
                    begin=len(head),
                    first=start,
                    best=(best[0] + shift, best[1] + shift),
                    passage=passage,
                )
            )
        return windows


def window_spans(count: int, room: int, step: int) -> list[tuple[int, int]]:
    """First and last + 1 of the tokens of each window (run_squad.py of google-research/bert).

    Args:
        count: tokens of the passage.
        room: the most tokens of a window.
        step: see `WindowOptions`.
    """
    step = step if step < room else max(room // 2, 1)
    spans = [(0, min(room, count))]
    while spans[-1][1] < count:
        start = spans[-1][0] + step
        spans.append((start, min(start + room, count)))
    return spans


def best_ranges(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The tokens of each window that have their maximum context in it, as (start, stop).

    The context of a token in a window is the smaller of what is left and right of it, plus a
    hundredth of the window's length; of equal windows the first one counts (`_check_is_max_context`
    of run_squad.py). Both ends of the windows only ever grow, so these tokens stand side by side.
    """
    if len(spans) == 1:
        return list(spans)
    context = np.full(spans[-1][1], -1.0)
    window = np.zeros(len(context), np.int64)
    for number, (start, stop) in enumerate(spans):
        left = np.arange(stop - start)
        here = np.minimum(left, left[::-1]) + 0.01 * (stop - start)
        better = here > context[start:stop]
        context[start:stop][better] = here[better]
        window[start:stop][better] = number
    edges = np.searchsorted(window, np.arange(len(spans) + 1)).tolist()
    return list(itertools.pairwise(edges))


def token_span(tokens: Encoding, start: int, stop: int) -> tuple[int, int] | None:
    """The first and the last of the fewest tokens that cover characters `start` … `stop - 1`.

    None where no token covers any of them: they are white space, or nothing is left of them.
    """
    first = bisect.bisect_right(tokens.offsets, start, key=lambda offset: offset[1])
    last = bisect.bisect_left(tokens.offsets, stop, key=lambda offset: offset[0]) - 1
    return (first, last) if first <= last else None


def _special(tokenizer: Tokenizer, token_id: int) -> Encoding:
    return Encoding([token_id], [0], [tokenizer.id_to_token(token_id)], [(0, 0)], [None], [1])


def _slice(tokens: Encoding, start: int, stop: int) -> Encoding:
    return Encoding(
        tokens.ids[start:stop],
        tokens.type_ids[start:stop],
        tokens.tokens[start:stop],
        tokens.offsets[start:stop],
        tokens.word_ids[start:stop],
        tokens.special_tokens_mask[start:stop],
    )


def _join(parts: Sequence[Encoding], type_id: int) -> Encoding:
    joined = Encoding([], [], [], [], [], [])
    for part in parts:
        joined.ids.extend(part.ids)
        joined.type_ids.extend([type_id] * len(part))
        joined.tokens.extend(part.tokens)
        joined.offsets.extend(part.offsets)
        joined.word_ids.extend(part.word_ids)
        joined.special_tokens_mask.extend(part.special_tokens_mask)
    return joined
