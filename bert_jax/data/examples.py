"""The examples of labelled files, one class for each kind of task, and inputs to predict.

Every example has an `id`, as its file gives it, else the number of its row from 0; and a `place`,
"file:line", for errors. An example whose label is None can only be predicted.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")

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
        question: about the prompt, in data sets that have one; else "".
    """

    prompt: str
    choices: tuple[str, ...]
    label: int | None
    id: str
    place: str
    question: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry(Generic[Item]):
    """An example of an input to predict, and what else its line or object has.

    Attributes:
        item: the text, sentence or question; the input of the task's predictor.
        other: the remaining columns or keys, which the output keeps.
        place: "file:line", for errors.
        id: as in the input, else its number from 0.
        gold: which of the other columns has the label; "": none.
    """

    item: Item
    other: dict[str, Any]
    place: str
    id: str
    gold: str = ""


class Entries(Generic[Item]):
    """The entries of an input, read once: what every reader returns to `bert-jax predict`.

    Attributes:
        count: entries read so far.
        fraction: returns the share of the input that is read; None where it is unknown.
    """

    def __init__(
        self, entries: Iterable[Entry[Item]], fraction: Callable[[], float | None] = lambda: None
    ) -> None:
        """Entries are read while they are iterated over."""
        self.count = 0
        self._entries = entries
        self.fraction = fraction

    def __iter__(self) -> Iterator[Entry[Item]]:
        for entry in self._entries:
            self.count += 1
            yield entry

    def estimated_total(self) -> int | None:
        """The number of entries, estimated by the share of bytes that are read; None: unknown."""
        fraction = self.fraction()
        return round(self.count / fraction) if fraction and self.count else None
