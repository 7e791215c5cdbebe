"""The examples of labelled files, one class per kind of task, and inputs to predict.

Every example has an `id`, that of its file or else the number of its row, from 0; a `place`,
"file:line", for errors; an `item`, the input of a predictor; and a `label`, in the form of
prediction files. An example with label None can only be predicted.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

Item = TypeVar("Item")

Label = str | float | tuple[str, ...]
"""A class, a value to regress on, or the classes of a multi-label text, possibly none."""


class LabelVector(tuple[str, ...]):
    """The classes of a text, of which a vector of 0 and 1 says for each whether it applies.

    Attributes:
        names: all C classes, in the order of the vector.
    """

    names: tuple[str, ...]

    def __new__(cls, names: tuple[str, ...], values: Iterable[bool]) -> "LabelVector":
        """The classes whose value, of C, is true."""
        chosen = (name for name, value in zip(names, values, strict=True) if value)
        vector = super().__new__(cls, chosen)
        vector.names = names
        return vector


class LabelledExample(Protocol):
    """The attributes of every example."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def item(self) -> Any: ...

    @property
    def label(self) -> Any: ...


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label."""

    text: str
    pair: str | None
    label: Label | None
    id: str
    place: str

    @property
    def item(self) -> str | tuple[str, str]:
        return self.text if self.pair is None else (self.text, self.pair)


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The words of a sentence, and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    id: str
    place: str

    @property
    def item(self) -> tuple[str, ...]:
        return self.words

    @property
    def label(self) -> tuple[str, ...] | None:
        return self.tags


@dataclasses.dataclass(frozen=True, slots=True)
class GoldAnswer:
    """An answer and its first character in its passage."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage.

    Attributes:
        answers: the accepted answers; empty if the passage has no answer; None if they are unknown.
    """

    question: str
    passage: str
    answers: tuple[GoldAnswer, ...] | None
    id: str
    place: str

    @property
    def item(self) -> "Question":
        return self

    @property
    def label(self) -> list[str] | None:
        """The texts of the accepted answers."""
        return None if self.answers is None else [answer.text for answer in self.answers]


@dataclasses.dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A prompt and several endings or answers, of which one is right.

    Attributes:
        prompt: text before all choices: a beginning, or a passage.
        choices: two or more texts.
        label: number of the right choice, from 0.
        question: question about the prompt, in data sets that have one; else "".
    """

    prompt: str
    choices: tuple[str, ...]
    label: int | None
    id: str
    place: str
    question: str = ""

    @property
    def item(self) -> "ChoiceExample":
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Entry(Generic[Item]):
    """An example of an input to predict, with the other fields of its line or object.

    Attributes:
        item: the text, sentence or question; the input of the task's predictor.
        other: the remaining columns or keys, which the output keeps.
        place: "file:line", for errors.
        id: id in the input, else the number of the entry, from 0.
        gold: name of the column among `other` that holds the label; "": none.
        columns: all columns or keys of the line, those of the text included; empty in formats that
            have none.
    """

    item: Item
    other: dict[str, Any]
    place: str
    id: str
    gold: str = ""
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def without_place(example: Any) -> str:
    """The content of an example or an entry for a digest, without its place: a file may move."""
    fields = []
    for name in example.__dataclass_fields__:
        if name not in ("place", "columns"):  # columns are the item and the others
            value = getattr(example, name)
            is_example = hasattr(value, "__dataclass_fields__")
            fields.append(without_place(value) if is_example else repr(value))
    return f"[{', '.join(fields)}]"


def digest_of(examples: Iterable[Any]) -> str:
    """16 hex digits of SHA-256 of examples, see `without_place`."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(f"{without_place(example)}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]


class Entries(Generic[Item]):
    """The entries of an input, read once; every reader returns them to `bert-jax predict`.

    Attributes:
        count: number of entries read so far.
        fraction: returns the share of the input that has been read; None if it is unknown.
    """

    def __init__(
        self, entries: Iterable[Entry[Item]], fraction: Callable[[], float | None] = lambda: None
    ) -> None:
        """Entries are read lazily, during iteration."""
        self.count = 0
        self._entries = entries
        self.fraction = fraction

    def __iter__(self) -> Iterator[Entry[Item]]:
        for entry in self._entries:
            self.count += 1
            yield entry

    def estimated_total(self) -> int | None:
        """The number of entries, estimated from the share of bytes read so far; None: unknown."""
        fraction = self.fraction()
        return round(self.count / fraction) if fraction and self.count else None
