"""The examples of labelled files, one class for each kind of task.

Every example has an `id`, as its file gives it, else the number of its row from 0; and a `place`,
"file:line", for errors. An example whose label is None can only be predicted.
"""

import dataclasses
from typing import Protocol

Label = str | float | tuple[str, ...]
"""A class, a value to regress on, or the classes of a text that may have several or none."""


class LabelledExample(Protocol):
    """The attributes of every example."""

    @property
    def id(self) -> str: ...

    @property
    def place(self) -> str: ...


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label."""

    text: str
    pair: str | None
    label: Label | None
    id: str
    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedSentence:
    """Words, and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    id: str
    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class GoldAnswer:
    """An answer and where it begins in its passage, in characters."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage.

    Attributes:
        answers: the accepted answers; none of them where the passage has no answer; None where
            they were not given.
    """

    question: str
    passage: str
    answers: tuple[GoldAnswer, ...] | None
    id: str
    place: str


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """Endings, or answers, of which one is right.

    Attributes:
        prompt: what comes before all of them: a beginning, or a passage.
        choices: two or more.
        label: the number of the right one, from 0.
        question: asked about the prompt, where there is one besides.
    """

    prompt: str
    choices: tuple[str, ...]
    label: int | None
    id: str
    place: str
    question: str = ""
