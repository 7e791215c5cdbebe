"""What a reader is trained on: passages of a question, and the positions of the answers."""

import dataclasses

import numpy as np

from bert_jax.data.examples import Candidates, Example, Text, texts_of
from bert_jax.data.windows.passages import PassageWindow, token_span
from bert_jax.errors import UserError
from bert_jax.metrics.answers import find_answers, has_answer

# Places of answers that the loss of a question takes, as in DPR.
MOST_SPANS = 10


def with_passages(example: Example[Candidates], count: int) -> Example[Candidates] | None:
    """The question with the first passage that has an answer, before `count` - 1 that have none.

    None if no passage has an answer.

    Raises:
        UserError: the answers are unknown.
    """
    if example.label is None:
        problem = f"{example.location}: the question has no answers to train on"
        raise UserError(f"{problem}; give them as 'answers'")
    positive: Text | None = None
    negatives: list[Text] = []
    for passage in example.input.documents:
        if len(negatives) == count - 1 and positive is not None:
            break
        if has_answer(example.label, texts_of(passage)[-1]):
            positive = passage if positive is None else positive
        elif len(negatives) < count - 1:
            negatives.append(passage)
    if positive is None:
        return None
    chosen = Candidates(example.input.query, (positive, *negatives))
    return dataclasses.replace(example, input=chosen)


def answer_positions(example: Example[Candidates], window: PassageWindow) -> np.ndarray:
    """The positions of the answers in the row of a question's first passage.

    Returns:
        int32 [10, 2], the first and the last token of each; -1 where there are fewer.
    """
    text = texts_of(example.input.documents[0])[-1]
    tokens = (token_span(window.passage, *span) for span in find_answers(example.label, text))
    spans = dict.fromkeys(map(window.answer_positions, tokens))
    spans.pop((0, 0), None)  # behind the end of the row
    positions = np.full((MOST_SPANS, 2), -1, np.int32)
    for index, span in enumerate([*spans][:MOST_SPANS]):
        positions[index] = span
    return positions
