"""Spans of passages: labelled answers in training rows, and the best spans by their scores.

Both follow google-research/bert, run_squad.py.

With the independent head, the score of a span is the sum of two logits. The original searches the
20 best start and end positions of a window, also inside the question; this module compares
all spans of the passage, so it misses none. With the joint head, the score is log P(start) +
log P(end | start), and a beam has the candidates.

The original also returns parts of words ("govern" of "government") where the model chooses them;
here an answer has whole words, see `whole_words`.
"""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.examples import Example, Question
from bert_jax.data.padding import Sequences
from bert_jax.data.windows.passages import PassageWindow, PassageWindows, find_answer, token_span
from bert_jax.errors import listed
from bert_jax.models.heads.question_answering import SpanBeam
from bert_jax.tasks.base.labelled_task import encode_in_chunks
from bert_jax.tasks.base.predictor import check_finite

# A letter, digit or mark of scripts up to Armenian (U+058F), Georgian, further Latin and Greek.
_IN_WORD = re.compile(
    "(?:[^\\W_]|[\u0300-\u036f])(?<=[\u0000-\u058f\u10a0-\u10ff\u1c90-\u1cbf\u1e00-\u1fff])"
)

Logits = tuple[np.ndarray, np.ndarray]
"""Start and end logits of the tokens of a row, float32 [≥ T] each."""


@dataclasses.dataclass(frozen=True)
class SpanRows:
    """The windows of all training questions, n rows.

    Attributes:
        sequences: tokens of the rows.
        positions: int32 [n, 2], first and last token of the answer in each row; (0, 0), the
            position of [CLS], if the row does not contain the whole answer.
        passages: int32 [n, 2], first position of the passage's tokens, and one past the last.
        without_answer: float32 [n], 1 if the row's question has no answer.
        report: lines that tell the user which questions were left out and why.
    """

    sequences: Sequences
    positions: np.ndarray
    passages: np.ndarray
    without_answer: np.ndarray
    report: tuple[str, ...]

    @classmethod
    def from_questions(
        cls, questions: Sequence[Example[Question]], windows: PassageWindows, answer_length: int
    ) -> "SpanRows":
        """Makes the rows of labelled questions.

        If a question has several answers, the first one in the passage is used.

        Args:
            questions: the questions.
            windows: how passages are read.
            answer_length: maximum number of tokens of a predicted answer, for the report.
        """
        used = [question for question in questions if _has_text(question)]
        noted = defaultdict[str, list[str]](list)  # locations of questions
        noted["empty"] = [each.location for each in questions if not _has_text(each)]
        labels: list[tuple[int, ...]] = []  # answer, passage, and whether there is no answer

        def encodings() -> Iterator[PassageWindow]:
            encoded = encode_in_chunks(
                windows, used, lambda each: (each.input.question, each.input.passage)
            )
            for question, rows in zip(used, encoded, strict=True):
                tokens, is_moved, is_repeated = _answer_tokens(question, rows[0])
                positions = [row.answer_positions(tokens) for row in rows]
                is_lost = tokens is None and bool(question.label)
                for what, is_so in {
                    "without": is_lost,
                    "repeated": is_repeated,
                    "longer": tokens is not None and tokens[1] - tokens[0] >= answer_length,
                    "split": tokens is not None and not any(map(any, positions)),
                    "moved": is_moved,
                    "cut": rows[0].is_cut,
                }.items():
                    noted[what] += [question.location] * is_so
                if not is_lost:
                    for answer, row in zip(positions, rows, strict=True):
                        labels.append((*answer, *row.positions, tokens is None))
                    yield from rows

        sequences = Sequences.from_encodings(encodings(), windows.tokenizer)
        total = f"of {len(questions)} training questions"
        reasons = {
            "empty": "are empty or have an empty passage: left out",
            "without": "have no answer that is in the passage: left out",
            "repeated": "have an answer that is in the passage several times, and no position of "
            "it: the first is learned; give answer_start",
            "longer": f"have an answer of more than {answer_length} tokens, which is never "
            "predicted: raise data.answer_length",
            "split": "have an answer that is whole in no window, as if none: raise data.length",
        }
        report = [
            f"{len(noted[name])} {total} {what} ({listed(noted[name])})"
            for name, what in reasons.items()
            if noted[name]
        ]
        if moved := len(noted["moved"]):
            report.append(f"answers at another position than the file says: {moved}")
        if cut := len(noted["cut"]):
            report.append(f"{cut} {total} were longer than {windows.question_limit} tokens: cut")
        columns = np.array(labels, np.int32).reshape(-1, 5)
        without_answer = columns[:, 4].astype(np.float32)
        return cls(sequences, columns[:, :2], columns[:, 2:4], without_answer, tuple(report))


def _has_text(example: Example[Question]) -> bool:
    return bool(example.input.question.strip() and example.input.passage.strip())


def _answer_tokens(
    example: Example[Question], window: PassageWindow
) -> tuple[tuple[int, int] | None, bool, bool]:
    """The first and the last token in the passage of the first answer that has any; None: none has.

    Then, whether the file says another position; and whether it says none, and the answer is there
    again.
    """
    passage = example.input.passage
    for answer in example.label or ():
        span = find_answer(passage, answer)
        tokens = token_span(window.passage, span.start, span.stop) if span else None
        if span and tokens:
            is_open = answer.start < 0
            again = is_open and passage.find(passage[span.start : span.stop], span.start + 1) >= 0
            return tokens, not (span.is_stated or is_open), again
    return None, False, False


class _SpanScores(NamedTuple):
    """The scores of the spans that begin in `max_context` of a window; -inf: not a candidate.

    Attributes:
        starts: float64 [starts], of the first tokens.
        ends: float64 [starts, lengths], of the last tokens; column j: of the span of j + 1 tokens.
    """

    starts: np.ndarray
    ends: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerSpan:
    """A span of a passage, or no answer.

    Attributes:
        text: `passage[start:end]`, "" for no answer.
        start: first character of the span in the passage.
        end: one past the last character.
        start_logit: start logit of the first token; with the joint head, log P(start).
        end_logit: end logit of the last token; with the joint head, log P(end | start).
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """The sum of both."""
        return self.start_logit + self.end_logit


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A span of a passage, or "" if the passage has no answer.

    Attributes:
        text: `passage[start:end]`.
        start: first character of the span in the passage.
        end: one past the last character.
        score: probability among the best answers, which include "" if it is allowed.
        no_answer_score: probability of ""; None if the model was trained to always find an answer.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer_score: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SpanPrediction:
    """The prediction for a question: the best spans of its passage, and the score of no answer.

    Attributes:
        best: the best spans, best first, all with different texts; empty if the passage has no
            tokens.
        null: no answer, with the logits of [CLS] in the window where their sum is lowest. With the
            joint head, `n_best` gives it the probability of `no_answer_logit`.
        no_answer_logit: for the joint head, the lowest logit of no answer in any window.
        null_threshold: the value of `null_odds` above which there is no answer; None: there is one.
        top_k: number of answers.
    """

    best: tuple[AnswerSpan, ...]
    null: AnswerSpan
    no_answer_logit: float | None = None
    null_threshold: float | None = None
    top_k: int = 1

    @property
    def null_odds(self) -> float:
        """The score of no answer minus the score of the best span; or the logit of no answer."""
        if self.no_answer_logit is not None:
            return self.no_answer_logit
        return self.null.score - (self.best[0].score if self.best else 0.0)

    def answer(self) -> AnswerSpan:
        """The best span, or `null` if `null_odds` is above the threshold."""
        is_null = self.null_threshold is not None and self.null_odds > self.null_threshold
        return self.null if is_null or not self.best else self.best[0]

    def n_best(self) -> list[tuple[AnswerSpan, float]]:
        """The best spans with their probabilities; `null` is ranked among them if allowed."""
        spans = list(self.best)
        if self.null_threshold is not None or not spans:
            spans = sorted([*spans, self.null], key=lambda span: -span.score)
        scores = np.array([span.score for span in spans])
        odds = np.exp(scores - scores.max())
        return list(zip(spans, (odds / odds.sum()).tolist(), strict=True))

    def answers(self) -> list[Answer]:
        """The best answers, the final answer first; fewer than `top_k` if the passage has fewer."""
        ranked, best = self.n_best(), self.answer()
        no_answer = None
        if self.null_threshold is not None:
            no_answer = next((score for span, score in ranked if span is self.null), None)
        # With a threshold other than 0, the answer may not be the most probable span.
        ranked.sort(key=lambda item: item[0] is not best)
        return [
            Answer(span.text, span.start, span.end, score, no_answer)
            for span, score in ranked[: self.top_k]
        ]


def best_spans(
    passage: str,
    windows: Sequence[PassageWindow],
    outputs: Sequence[Logits | SpanBeam],
    n_best: int = 20,
    answer_length: int = 30,
) -> SpanPrediction:
    """Selects the best answer spans of all windows.

    An answer begins with a token that has its maximum context in its window, ends in the same
    window, and is at most `answer_length` tokens long, before it is extended to whole words. Its
    text is copied from the passage character by character, without surrounding white space.

    Args:
        passage: the original text.
        windows: all windows of the question.
        outputs: logits of the tokens of each window; with the joint head, the beam of each.
        n_best: number of spans, all with different texts.
        answer_length: maximum number of tokens of an answer.

    Raises:
        NotFiniteError: a score is NaN or infinite.
    """
    scores = [
        _beam_scores(window, output, answer_length)
        if isinstance(output, SpanBeam)
        else _logit_scores(window, *output, answer_length)
        for window, output in zip(windows, outputs, strict=True)
    ]
    count = 4 * n_best  # some have the same text
    while True:
        candidates = _candidates(scores, count)
        spans = _distinct(passage, windows, scores, candidates[:count], n_best)
        if len(spans) == n_best or len(candidates) < count:
            return _with_null(spans, outputs)
        count *= 4


def whole_words(passage: str, start: int, end: int) -> tuple[int, int]:
    """The characters from `start` to `end` - 1, extended to whole words.

    A word is a run of letters, digits and marks of scripts that separate words by spaces, such as
    Latin, Greek and Cyrillic. Elsewhere answers end inside such runs: in JaQuAD 41 %, in
    XQuAD in Thai 9 %, in Arabic 2 %, but in SQuAD 0.2 %.
    """
    while 0 < start < end and _joins(passage, start):
        start -= 1
    while start < end < len(passage) and _joins(passage, end):
        end += 1
    return start, end


def _joins(passage: str, at: int) -> bool:
    """Whether the characters before and at a position belong to one word."""
    return bool(_IN_WORD.match(passage[at - 1]) and _IN_WORD.match(passage[at]))


def _with_null(
    spans: tuple[AnswerSpan, ...], outputs: Sequence[Logits | SpanBeam]
) -> SpanPrediction:
    beams = [output for output in outputs if isinstance(output, SpanBeam)]
    if not beams:
        firsts = [(float(start[0]), float(end[0])) for start, end, *_ in outputs]
        return SpanPrediction(spans, AnswerSpan("", 0, 0, *min(firsts, key=sum)))
    logit = min(float(beam.no_answer_logits) for beam in beams)
    total = float(np.logaddexp.reduce([span.score for span in spans])) if spans else 0.0
    return SpanPrediction(spans, AnswerSpan("", 0, 0, total + logit, 0.0), logit)


def _logit_scores(
    window: PassageWindow, start_logits: np.ndarray, end_logits: np.ndarray, answer_length: int
) -> _SpanScores:
    """The scores from the logits of the tokens; -inf where a span leaves the window."""
    start, stop = window.max_context
    starts = start_logits[start:stop].astype(np.float64)
    ends = end_logits[start : window.positions[1]].astype(np.float64)
    for scores in (starts, ends):
        check_finite(scores, "the scores of a question")
    answer_length = max(1, min(answer_length, len(ends)))  # a longer answer leaves the window
    beyond = np.full(answer_length, -np.inf)
    by_length = np.lib.stride_tricks.sliding_window_view(
        np.concatenate([ends, beyond]), answer_length
    )
    return _SpanScores(starts, by_length[: len(starts)])


def _beam_scores(window: PassageWindow, beam: SpanBeam, answer_length: int) -> _SpanScores:
    """The scores from a beam; -inf for the spans that it does not have."""
    for scores in (beam.start_scores, beam.end_scores, beam.no_answer_logits):
        check_finite(np.where(np.isneginf(scores), 0, scores), "the scores of a question")
    start, stop = window.max_context
    answer_length = max(1, min(answer_length, window.positions[1] - start))
    starts = np.full(stop - start, -np.inf)
    ends = np.full((stop - start, answer_length), -np.inf)
    is_start, is_end = beam.start_scores > -np.inf, beam.end_scores > -np.inf
    starts[beam.starts[is_start] - start] = beam.start_scores[is_start]
    start_rows, end_columns = np.nonzero(is_start[:, None] & is_end)
    first, last = beam.starts[start_rows], beam.ends[start_rows, end_columns]
    ends[first - start, last - first] = beam.end_scores[start_rows, end_columns]
    return _SpanScores(starts, ends)


def _candidates(scores: Sequence[_SpanScores], count: int) -> list[tuple[int, int, int]]:
    """The best spans as (window, start in `window.max_context`, tokens - 1), the best first.

    At least `count`, if there are that many; equal scores in the order of the passage.
    """
    values, spans = [], []
    for number, window_scores in enumerate(scores):
        flat = (window_scores.starts[:, None] + window_scores.ends).ravel()
        least = np.partition(flat, -count)[-count] if flat.size > count else -np.inf
        chosen = np.flatnonzero((flat >= least) & (flat > -np.inf))
        values.append(flat[chosen])
        start, length = np.divmod(chosen, window_scores.ends.shape[1])
        spans.append(np.stack([np.full(len(chosen), number), start, length], axis=1))
    order = np.argsort(-np.concatenate(values), kind="stable")
    return [tuple(span) for span in np.concatenate(spans)[order].tolist()]


def _distinct(
    passage: str,
    windows: Sequence[PassageWindow],
    scores: Sequence[_SpanScores],
    candidates: Sequence[tuple[int, int, int]],
    n_best: int,
) -> tuple[AnswerSpan, ...]:
    """The first `n_best` candidates with different texts."""
    spans: dict[str, AnswerSpan] = {}
    for number, start, length in candidates:
        window, (starts, ends) = windows[number], scores[number]
        first = window.max_context[0] + start
        last = first + length
        begin, end = window.offsets[first][0], window.offsets[last][1]
        # SentencePiece tokens include the space before a word.
        text = passage[begin:end].lstrip()
        begin, text = end - len(text), text.rstrip()
        begin, end = whole_words(passage, begin, begin + len(text))
        text = passage[begin:end]
        if text and text not in spans:
            logits = float(starts[start]), float(ends[start, length])
            spans[text] = AnswerSpan(text, begin, begin + len(text), *logits)
            if len(spans) == n_best:
                break
    return tuple(spans.values())
