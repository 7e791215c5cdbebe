"""The example of a task: a record of a file, from reading to prediction."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

Input = TypeVar("Input")

Pair = tuple[str, str]
Text = str | Pair
"""A text, or a pair of texts."""

Label = str | float | tuple[str, ...]
"""A class, a value to regress on, or the classes of a multi-label text, possibly none."""

_NO_COLUMNS: Mapping[str, Any] = MappingProxyType({})


class LabelVector(tuple[str, ...]):
    """The classes of a text that a vector of 0 and 1 marks.

    Attributes:
        names: all C classes, in the order of the vector.
    """

    names: tuple[str, ...]

    def __new__(cls, names: tuple[str, ...], values: Iterable[bool]) -> "LabelVector":
        """The classes with a true value, of C values."""
        chosen = (name for name, value in zip(names, values, strict=True) if value)
        vector = super().__new__(cls, chosen)
        vector.names = names
        return vector


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnLines:
    """The lines of a sentence in a file in columns, with the other lines around it.

    Attributes:
        text: the lines as in the file, with their line ends.
        rows: indices of the lines that are words.
        separator: separator of the columns, see `conll.ColumnOptions`.
    """

    text: str
    rows: tuple[int, ...]
    separator: str


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence; a label is a tag for each, `tuple[str, ...]`.

    Attributes:
        words: the words.
        lines: the sentence's lines of a file in columns; None: of another file.
    """

    words: tuple[str, ...]
    lines: ColumnLines | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class GoldAnswer:
    """An answer and its first character in its passage."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage.

    A label has the accepted answers, `tuple[GoldAnswer, ...]`: empty if the passage has no answer.
    """

    question: str
    passage: str


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """A prompt and several endings or answers; a label is the number of the right one, from 0.

    Attributes:
        prompt: text before all choices: a beginning, or a passage.
        choices: two or more texts.
        question: question about the prompt, in data sets that have one; else "".
    """

    prompt: str
    choices: tuple[str, ...]
    question: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Example(Generic[Input]):
    """An example to train on, to evaluate or to predict.

    Attributes:
        input: the input of the task's predictor: a text or a pair, a sentence, a question, or
            choices.
        label: the label; None: unknown, so that the example can only be predicted.
        id: id in the file, else the number of the record, from 0.
        location: "file:line", for errors.
        fields: columns or keys of the record that are not part of the input, which a prediction
            keeps; none in training.
        label_field: name of the field with the label; "": none.
        record: all columns or keys of the record, to choose others to keep; empty in formats that
            have none, and in training.
    """

    input: Input
    label: Any = None
    id: str = ""
    location: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _NO_COLUMNS)
    label_field: str = ""
    record: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _NO_COLUMNS)

    def labelled(self, label: Any) -> "Example[Input]":
        """The example to train on, or to evaluate: with this label, and without fields."""
        return Example(self.input, label, self.id, self.location)


def texts_of(text: Text) -> tuple[str, ...]:
    """The one text, or both texts of a pair."""
    return (text,) if isinstance(text, str) else text


def digest_of(examples: Iterable[Example[Any]]) -> str:
    """16 hex digits of SHA-256 of the contents of examples, see `content_of`."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(content_of(example))
    return digest.hexdigest()[:16]


def content_of(example: Example[Any]) -> bytes:
    """The content of an example for a digest, without its location: a file may move.

    Digests in run directories have this order of the values.
    """
    after: tuple[Any, ...] = ()
    match example.input:
        case Sentence(words, lines):
            before: tuple[Any, ...] = (words,)
            after = (lines.text, lines.rows, lines.separator) if lines else ()
        case Question(question, passage):
            before = (question, passage)
        case Choices(prompt, choices, question):
            before, after = (prompt, choices), (question,)
        case str() as text:
            before = (text, None)
        case pair:
            before = tuple(pair)
    kept = (example.fields, example.label_field) if example.fields else ()
    values = (*before, example.label, example.id, *after, *kept)
    return f"[{', '.join(map(repr, values))}]\n".encode(errors="surrogatepass")


class Examples(Generic[Input]):
    """The examples of an input, read once; every reader returns them to `bert-jax predict`.

    Attributes:
        count: number of examples read so far.
        fraction: returns the share of the input that has been read; None if it is unknown.
    """

    def __init__(
        self,
        examples: Iterable[Example[Input]],
        fraction: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Examples are read lazily, during iteration."""
        self.count = 0
        self._examples = examples
        self.fraction = fraction

    def __iter__(self) -> Iterator[Example[Input]]:
        for example in self._examples:
            self.count += 1
            yield example

    def estimated_total(self) -> int | None:
        """The number of examples, estimated from the share of bytes read so far; None: unknown."""
        fraction = self.fraction()
        return round(self.count / fraction) if fraction and self.count else None
