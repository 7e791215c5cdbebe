"""The example of a task: a record of a file, from reading to prediction."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from bert_jax.errors import UserError

Input = TypeVar("Input")
Item = TypeVar("Item")

Pair = tuple[str, str]
Text = str | Pair
"""A text, or a pair of texts."""

TITLES = ("join", "pair", "omit")
"""How a model reads the title of a document, see `with_title`."""

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
        text: the text that the words are from; "": it is unknown.
        spans: first character of each word in the text, and one past its last.
    """

    words: tuple[str, ...]
    lines: ColumnLines | None = dataclasses.field(default=None, compare=False)
    text: str = dataclasses.field(default="", compare=False)
    spans: tuple[tuple[int, int], ...] = dataclasses.field(default=(), compare=False)


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
class Candidates:
    """A query and its documents, positives first; a label is a `Relevance`.

    Attributes:
        query: text of the query.
        documents: K texts; a document with a title is the pair (title, text).
    """

    query: str
    documents: tuple[Text, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Relevance:
    """The relevance of a query's documents.

    Attributes:
        grades: a value for each of the K documents; above 0: a positive.
        scores: scores of a teacher, one for each document; () without.
    """

    grades: tuple[float, ...]
    scores: tuple[float, ...] = ()

    @property
    def has_others(self) -> bool:
        """Whether a document is no positive; else most metrics are perfect in any order."""
        return min(self.grades, default=1) <= 0


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A document of a collection.

    Attributes:
        id: unique in the collection.
        text: the text without the title.
        title: the title; "": none.
    """

    id: str
    text: str
    title: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Passage(Document):
    """A part of a document, and itself a document of an index.

    Attributes:
        id: the document's id, "#" and the number of the passage, from 0.
        text: a part of the document's text.
        title: title of the document; "": none.
        document: the document's id.
        start: first character of the passage in the document's text.
    """

    document: str = ""
    start: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ImageFile:
    """An image, which is decoded when it is computed; a label is its class.

    Attributes:
        name: the name of its file in its folder, or of its example in a data set.
        path: path of the file, local or in a bucket; "": the image is in memory.
        content: an image file in memory.
        size: number of bytes of the file; in a bucket 0: to ask for it would take long.
    """

    name: str
    path: str = dataclasses.field(default="", compare=False)
    content: bytes = dataclasses.field(default=b"", repr=False)
    size: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Example(Generic[Input]):
    """An example to train on, to evaluate or to predict.

    Attributes:
        input: the input of the task's predictor: a text or a pair, a sentence, a question,
            choices, or candidates.
        label: the label; None: unknown, so that the example can only be predicted.
        id: id in the file, else the number of the record, from 0.
        location: "file:line", for errors.
        fields: columns or keys of the record that are not part of the input, which a prediction
            keeps; none in training.
        label_field: name of the field with the label; "": none.
        record: all columns or keys of the record, which a prediction keeps unless others are
            chosen; empty in formats that have none, and in training.
        error: why the record is malformed, so that there is no input; None: it is not.
        read: columns or keys of the record that input, label and id may be from; (): unknown.
    """

    input: Input
    label: Any = None
    id: str = ""
    location: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _NO_COLUMNS)
    label_field: str = ""
    record: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _NO_COLUMNS)
    error: UserError | None = None
    read: tuple[str, ...] = ()

    def labelled(self, label: Any) -> "Example[Input]":
        """The example to train on, or to evaluate: with this label, and without fields."""
        return Example(self.input, label, self.id, self.location)


def parts_of(input: Any) -> dict[str, Any]:
    """The texts of an input, or the name of an image, as fields of a file; {} of others.

    Words and candidates are fields of the predictions themselves.
    """
    match input:
        case ImageFile(name):
            return {"image": name}
        case str():
            return {"text": input}
        case (first, second):
            return {"text": first, "text_pair": second}
        case Question(question, passage):
            return {"question": question, "passage": passage}
        case Choices(prompt, choices, question):
            asked = {"question": question} if question else {}
            return {"prompt": prompt, **asked, "choices": [*choices]}
    return {}


def texts_of(text: Text) -> tuple[str, ...]:
    """The one text, or both texts of a pair."""
    return text if isinstance(text, tuple) else (text,)


def with_title(text: str, title: str, titles: str) -> Text:
    """What a model reads of a document.

    Args:
        text: the text.
        title: the title; "": none.
        titles: "join": the title, a blank and the text are one text, as BEIR encodes documents;
            "pair": they are the pair (title, text), as DPR encodes passages; "omit": the title is
            left out.
    """
    if not title or titles == "omit":
        return text
    return (title, text) if titles == "pair" else f"{title} {text}"


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
        case Candidates(query, documents):
            before = (query, documents)
        case ImageFile(name, _, content, size):
            before = (name, hashlib.sha256(content).hexdigest() if content else size)
        case str() | None as text:
            before = (text, None)
        case pair:
            before = tuple(pair)
    kept = (example.fields, example.label_field) if example.fields else ()
    values = (*before, example.label, example.id, *after, *kept)
    return f"[{', '.join(map(repr, values))}]\n".encode(errors="surrogatepass")


class Stream(Generic[Item]):
    """The items of an input, read once; iteration raises the error of a malformed example.

    Attributes:
        count: number of items read so far.
        fraction: returns the share of the input that has been read; None if it is unknown.
    """

    def __init__(
        self,
        items: Iterable[Item],
        fraction: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Items are read lazily, during iteration."""
        self.count = 0
        self._items = items
        self.fraction = fraction

    def __iter__(self) -> Iterator[Item]:
        for item in self.with_errors():
            if isinstance(item, Example) and item.error is not None:
                raise item.error
            yield item

    def with_errors(self) -> Iterator[Item]:
        """The items with malformed examples in their places."""
        for item in self._items:
            self.count += 1
            yield item

    def estimated_total(self) -> int | None:
        """The number of items, estimated from the share of bytes read so far; None: unknown."""
        fraction = self.fraction()
        return round(self.count / fraction) if fraction and self.count else None


Examples = Stream[Example[Input]]
"""The examples of an input; every reader returns them to `bert-jax predict`."""


def each_example(
    function: Callable[[Example[Any]], Example[Input]], examples: Examples[Any]
) -> Examples[Input]:
    """The examples that a function makes of others; a UserError is the error of its example."""

    def made(example: Example[Any]) -> Example[Any]:
        try:
            return example if example.error else function(example)
        except UserError as error:
            return dataclasses.replace(example, input=None, error=error)

    return Examples(map(made, examples.with_errors()), examples.fraction)
