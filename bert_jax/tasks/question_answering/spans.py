"""Answers from the scores of a question's windows (google-research/bert, run_squad.py).

The original searches the 20 best first and the 20 best last tokens of a window, those of the
question among them. Here all spans of a passage are compared, and none is missed.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax.data.windows.passages import PassageWindow
from bert_jax.tasks.base.predictor import check_finite

Logits = tuple[np.ndarray, np.ndarray]
"""Scores of the tokens of a row as the first and as the last of the answer, float32 [≥ T] each."""


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerSpan:
    """A part of a passage, or nothing.

    Attributes:
        text: `passage[start:end]`, "" for nothing.
        start: its first character in the passage.
        end: one past its last character.
        start_logit: score of its first token.
        end_logit: score of its last token.
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of both scores."""
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True, slots=True)
class SpanPrediction:
    """The best spans of a question's passage, and the score of no answer.

    Attributes:
        best: the best first, each of another text; empty where the passage has no tokens.
        null: no answer: the scores of [CLS] in the window where they are lowest.
    """

    best: tuple[AnswerSpan, ...]
    null: AnswerSpan

    @property
    def null_odds(self) -> float:
        """How much better the scores of no answer are than those of the best span."""
        return self.null.score - (self.best[0].score if self.best else 0.0)

    def answer(self, null_threshold: float | None) -> AnswerSpan:
        """The best span, or `null` if `null_odds` are above the threshold (None: never)."""
        is_null = null_threshold is not None and self.null_odds > null_threshold
        return self.null if is_null or not self.best else self.best[0]

    def n_best(self, *, with_null: bool) -> list[tuple[AnswerSpan, float]]:
        """Spans, and `null` at its place or not, each with its probability among them."""
        spans = list(self.best)
        if with_null or not spans:
            spans = sorted([*spans, self.null], key=lambda span: -span.score)
        scores = np.array([span.score for span in spans])
        odds = np.exp(scores - scores.max())
        return list(zip(spans, (odds / odds.sum()).tolist(), strict=True))


def best_spans(
    passage: str,
    windows: Sequence[PassageWindow],
    logits: Sequence[Logits],
    n_best: int = 20,
    answer_length: int = 30,
) -> SpanPrediction:
    """Reads the answer to a question out of the scores of its windows.

    An answer begins with a token that has its maximum context in its window, ends in the same
    window, and is at most `answer_length` tokens long. Its text is that of the passage,
    character by character, white space around it left out.

    Args:
        passage: the original text.
        windows: of the question, all of them.
        logits: for each window the scores of its tokens.
        n_best: the number of spans, each of another text.
        answer_length: the most tokens of an answer.

    Raises:
        NotFiniteError: a score is NaN or infinite.
    """
    scores = [
        _span_scores(window, *of_window, answer_length)
        for window, of_window in zip(windows, logits, strict=True)
    ]
    count = 4 * n_best  # some will have the same text
    while True:
        candidates = _candidates(scores, count)
        spans = _distinct(passage, windows, logits, candidates[:count], n_best)
        if len(spans) == n_best or len(candidates) < count:
            return SpanPrediction(spans, _null(logits))
        count *= 4


def _null(logits: Sequence[Logits]) -> AnswerSpan:
    firsts = [(float(start[0]), float(end[0])) for start, end in logits]
    return AnswerSpan("", 0, 0, *min(firsts, key=sum))


def _span_scores(
    window: PassageWindow, start_logits: np.ndarray, end_logits: np.ndarray, answer_length: int
) -> np.ndarray:
    """Scores of the spans that begin in `window.max_context`, float64 [starts, answer_length].

    Column j is the span of j + 1 tokens; -inf where it leaves the window.
    """
    start, stop = window.max_context
    starts = start_logits[start:stop].astype(np.float64)
    ends = end_logits[start : window.positions[1]].astype(np.float64)
    for scores in (starts, ends):
        check_finite(scores, "the scores of a question")
    beyond = np.full(answer_length, -np.inf)
    by_length = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([ends, beyond]), answer_length
    )
    return starts[:, None] + by_length[: len(starts)]


def _candidates(scores: Sequence[np.ndarray], count: int) -> list[tuple[int, int, int]]:
    """The best spans, as (window, start in `window.max_context`, tokens - 1), the best first.

    At least `count` of them, if there are so many; equal ones stand in the order of the passage.
    """
    values, spans = [], []
    for number, of_window in enumerate(scores):
        flat = of_window.ravel()
        least = np.partition(flat, -count)[-count] if flat.size > count else -np.inf
        chosen = np.flatnonzero((flat >= least) & (flat > -np.inf))
        values.append(flat[chosen])
        start, length = np.divmod(chosen, of_window.shape[1])
        spans.append(np.stack([np.full(len(chosen), number), start, length], axis=1))
    order = np.argsort(-np.concatenate(values), kind="stable")
    return [tuple(span) for span in np.concatenate(spans)[order].tolist()]


def _distinct(
    passage: str,
    windows: Sequence[PassageWindow],
    logits: Sequence[Logits],
    candidates: Sequence[tuple[int, int, int]],
    n_best: int,
) -> tuple[AnswerSpan, ...]:
    """The first `n_best` candidates of different texts."""
    spans: dict[str, AnswerSpan] = {}
    for number, start, length in candidates:
        window, (start_logits, end_logits) = windows[number], logits[number]
        first = window.max_context[0] + start
        last = first + length
        begin, end = window.offsets[first][0], window.offsets[last][1]
        # SentencePiece counts the space before a word to it.
        text = passage[begin:end].lstrip()
        begin, text = end - len(text), text.rstrip()
        if text and text not in spans:
            scores = float(start_logits[first]), float(end_logits[last])
            spans[text] = AnswerSpan(text, begin, begin + len(text), *scores)
            if len(spans) == n_best:
                break
    return tuple(spans.values())
