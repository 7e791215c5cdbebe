"""The training rows of questions: windows of passages, and where each has the answer."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.examples import Example, Question
from bert_jax.data.padding import Sequences
from bert_jax.data.windows.passages import PassageWindow, PassageWindows, find_answer, token_span
from bert_jax.errors import listed
from bert_jax.tasks.base.labelled_task import encode_in_chunks


@dataclasses.dataclass(frozen=True)
class SpanRows:
    """The windows of all training questions, R rows.

    Attributes:
        sequences: tokens of the rows.
        positions: int32 [R, 2], first and last token of the answer in each row; (0, 0), the
            position of [CLS], if the row does not contain the whole answer.
        passages: int32 [R, 2], first position of the passage's tokens, and one past the last.
        without_answer: float32 [R], 1 if the row's question has no answer.
        report: lines that tell the user which questions were left out and why.
    """

    sequences: Sequences
    positions: np.ndarray
    passages: np.ndarray
    without_answer: np.ndarray
    report: tuple[str, ...]

    @classmethod
    def of(cls, questions: Sequence[Example[Question]], windows: PassageWindows) -> "SpanRows":
        """Makes the rows of labelled questions.

        If a question has several answers, the first one found in the passage is used.
        """
        used = [question for question in questions if _has_text(question)]
        empty = [question.location for question in questions if not _has_text(question)]
        without: list[str] = []  # locations of questions
        moved: list[str] = []
        positions: list[tuple[int, int]] = []
        passages: list[tuple[int, int]] = []
        without_answer: list[bool] = []
        cut = 0

        def encodings() -> Iterator[PassageWindow]:
            nonlocal cut
            pairs = [(each.input.question, each.input.passage) for each in used]
            for question, rows in zip(used, encode_in_chunks(windows, pairs), strict=True):
                cut += rows[0].is_cut
                tokens, is_stated = _answer_tokens(question, rows[0])
                if question.label and tokens is None:
                    without.append(question.location)
                    continue
                if not is_stated:
                    moved.append(question.location)
                positions.extend(row.answer_positions(tokens) for row in rows)
                passages.extend(row.positions for row in rows)
                without_answer.extend(tokens is None for _ in rows)
                yield from rows

        sequences = Sequences.of(encodings())
        total = f"of {len(questions)} training questions"
        report = [
            f"{len(locations)} {total} {what}: left out ({listed(locations)})"
            for locations, what in (
                (empty, "are empty or have an empty passage"),
                (without, "have no answer that is in the passage"),
            )
            if locations
        ]
        if moved:
            report.append(f"answers at another place than the file says: {len(moved)}")
        if cut:
            report.append(f"{cut} {total} were longer than {windows.question_limit} tokens: cut")
        return cls(
            sequences,
            np.array(positions, np.int32).reshape(-1, 2),
            np.array(passages, np.int32).reshape(-1, 2),
            np.array(without_answer, np.float32),
            tuple(report),
        )


def _has_text(example: Example[Question]) -> bool:
    return bool(example.input.question.strip() and example.input.passage.strip())


def _answer_tokens(
    example: Example[Question], window: PassageWindow
) -> tuple[tuple[int, int] | None, bool]:
    """The tokens of the first answer that has any, and whether the file's position is correct."""
    for answer in example.label or ():
        span = find_answer(example.input.passage, answer)
        tokens = token_span(window.passage, span.start, span.stop) if span else None
        if span and tokens:
            # A start that the file does not give cannot be wrong.
            return tokens, span.is_stated or answer.start < 0
    return None, True
