"""Training rows of extractive question answering: windows, and where the answer stands in them."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.examples import Question
from bert_jax.data.labelled_batches import Sequences
from bert_jax.data.windows.answer_places import find_answer
from bert_jax.data.windows.passage_windows import (
    PassageWindow,
    PassageWindows,
    WindowOptions,
    token_span,
)
from bert_jax.tokenization.interface import Encoding, Tokenizer

# Questions that are tokenised together: passages are shared among them, memory is small.
_CHUNK = 512

# How many of the places of left-out questions are named.
_NAMED = 3


@dataclasses.dataclass
class Counts:
    """What became of the questions.

    Attributes:
        questions: all of them.
        empty: places of questions that are empty or have an empty passage; left out.
        lost: places of questions none of whose answers is in its passage; left out.
        searched: answers that were found at another place than the file says.
        cut: questions that were longer than they may be.
    """

    questions: int = 0
    empty: list[str] = dataclasses.field(default_factory=list)
    lost: list[str] = dataclasses.field(default_factory=list)
    searched: int = 0
    cut: int = 0


@dataclasses.dataclass(frozen=True)
class SpanRows:
    """All rows of a training set.

    Attributes:
        sequences: their tokens.
        positions: int32 [n, 2], the first and the last token of the answer in each row; (0, 0),
            which is [CLS], where the row has no answer, or not all of it.
        counts: what became of the questions.
        options: how passages were cut.
    """

    sequences: Sequences
    positions: np.ndarray
    counts: Counts
    options: WindowOptions

    @classmethod
    def of(
        cls, questions: Sequence[Question], tokenizer: Tokenizer, options: WindowOptions
    ) -> "SpanRows":
        """Makes the rows of questions whose answers are given.

        Of several answers to a question, the first one that is in the passage counts.
        """
        windows = PassageWindows(tokenizer, options)
        counts = Counts(len(questions))
        positions: list[tuple[int, int]] = []

        def encodings() -> Iterator[Encoding]:
            usable = [question for question in questions if not _is_empty(question, counts)]
            for start in range(0, len(usable), _CHUNK):
                chunk = usable[start : start + _CHUNK]
                asked = [(question.question, question.passage) for question in chunk]
                for question, rows in zip(chunk, windows(asked), strict=True):
                    tokens = _answer_tokens(question, rows[0].passage, counts)
                    if question.answers and tokens is None:
                        counts.lost.append(question.place)
                        continue
                    positions.extend(_positions(row, tokens) for row in rows)
                    yield from rows

        sequences = Sequences.of(encodings())
        counts.cut = windows.cut_questions
        return cls(sequences, np.array(positions, np.int32).reshape(-1, 2), counts, options)

    def report(self) -> list[str]:
        """A line for everything that a user should know."""
        counts, total = self.counts, f"of {self.counts.questions} training questions"
        lines = [
            f"{len(places)} {total} {what}: left out ({_named(places)})"
            for places, what in (
                (counts.empty, "are empty or have an empty passage"),
                (counts.lost, "have no answer that is in the passage"),
            )
            if places
        ]
        if counts.searched:
            lines.append(f"answers found at another place than the file says: {counts.searched}")
        if counts.cut:
            limit = self.options.question_limit
            lines.append(f"{counts.cut} {total} were longer than {limit} tokens: cut")
        return lines


def _is_empty(question: Question, counts: Counts) -> bool:
    is_empty = not (question.question.strip() and question.passage.strip())
    if is_empty:
        counts.empty.append(question.place)
    return is_empty


def _answer_tokens(question: Question, passage: Encoding, counts: Counts) -> tuple[int, int] | None:
    """The tokens of the first answer that has any."""
    for answer in question.answers or ():
        place = find_answer(question.passage, answer)
        tokens = token_span(passage, place.start, place.stop) if place else None
        if place and tokens:
            # A start that the file does not give cannot be wrong.
            counts.searched += not place.is_stated and answer.start >= 0
            return tokens
    return None


def _positions(row: PassageWindow, tokens: tuple[int, int] | None) -> tuple[int, int]:
    return (0, 0) if tokens is None else row.positions(tokens)


def _named(places: Sequence[str]) -> str:
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return ", ".join(places[:_NAMED]) + more
