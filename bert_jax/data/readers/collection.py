"""Collections to search: documents with ids, and queries about them.

    BEIR folder   corpus.jsonl, queries.jsonl
    JSON lines    an id, a text and perhaps a title, under usual names
    TSV, CSV      with a header, as DPR's passages: id, text, title; without one, an id and a text
    SQuAD's JSON  each paragraph once, "0-3" for data[0].paragraphs[3]; the questions are queries
    plain text    a document on each line

Documents are read one by one; of those before, 8 bytes are kept of each id. A file without ids has
the numbers of its records, from 0.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.examples import Document, Stream
from bert_jax.data.readers.columns import named_column, no_usual_name, usual_column
from bert_jax.data.readers.folders import file_of
from bert_jax.data.readers.squad import (
    SQUAD,
    QuestionOptions,
    is_squad,
    items,
    read_json,
    read_questions,
)
from bert_jax.data.readers.tables import FileOptions, Record, first_row, open_records, string_field
from bert_jax.data.unique_ids import UniqueIds
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.process import say

EMPTY = ("error", "skip")
DOCUMENT_TEXTS = ("text", "contents", "content", "body", "passage", "passage_text", "document")


class _Kind(NamedTuple):
    """What is read: documents, or queries.

    Attributes:
        name: name of one in errors.
        file: name of the file in a BEIR folder.
        ids, texts: usual names of columns, searched in this order.
    """

    name: str
    file: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]


_DOCUMENTS = _Kind(
    "document",
    "corpus.jsonl",
    ("_id", "id", "docid", "doc_id", "docno", "document_id", "pid", "passage_id"),
    DOCUMENT_TEXTS,
)
_QUERIES = _Kind(
    "query",
    "queries.jsonl",
    ("_id", "id", "query_id", "query-id", "qid", "question_id"),
    ("text", "query", "question", "query_text"),
)


@dataclasses.dataclass(frozen=True)
class CollectionOptions(FileOptions):
    """How documents or queries are read; keys of the same names in section `data`.

    A column is named, or numbered from 0; "": a column with a usual name.

    Attributes:
        format: "squad" or another format of `FileOptions`; "": selected by the file extension,
            .json is SQuAD's, and one without a known extension is plain text.
        id_column: column or key of the id.
        text_column: column or key of the text.
        title_column: column or key of the title.
        empty: whether a document without text and title is an error ("error") or left out ("skip",
            with a count on stderr).
    """

    FORMATS = (SQUAD, "jsonl", "tsv", "csv", "text")

    id_column: str = ""
    text_column: str = ""
    title_column: str = ""
    empty: str = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("data.empty", self.empty, EMPTY)


_DEFAULTS = CollectionOptions()


@contextlib.contextmanager
def open_collection(
    source: str | Path, options: CollectionOptions = _DEFAULTS
) -> Iterator[Stream[Document]]:
    """Opens a collection; its documents are read one by one, except those of a JSON file.

    Args:
        source: a BEIR folder; a file, also compressed; "-" for stdin; or "tfds:…".
        options: options of the reader.

    Raises:
        UserError: the source cannot be opened; or, during iteration, a document is malformed or
            empty, or has no id or that of another one; the message names the location.
    """
    with _open(source, options, _DOCUMENTS) as documents:
        yield documents


def read_queries(source: str | Path, options: CollectionOptions = _DEFAULTS) -> dict[str, str]:
    """Query id → text; for arguments and errors see `open_collection`.

    The queries of a BEIR folder are in its queries.jsonl, of SQuAD's JSON its questions.
    """
    with _open(source, options, _QUERIES) as queries:
        return {query.id: query.text for query in queries}


@contextlib.contextmanager
def _open(
    source: str | Path, options: CollectionOptions, kind: _Kind
) -> Iterator[Stream[Document]]:
    source = file_of(source, kind.file)
    with _located(source, options, kind) as (documents, fraction):
        yield Stream(_checked(documents, source, options, kind), fraction)


# Documents with their locations, and the share that was read.
_Located = tuple[Iterator[tuple[Document, str]], Callable[[], float | None]]


@contextlib.contextmanager
def _located(source: str | Path, options: CollectionOptions, kind: _Kind) -> Iterator[_Located]:
    """Opens a file."""
    if is_squad(source, options):
        read = _paragraphs if kind is _DOCUMENTS else _questions
        yield read(source, options), lambda: None
        return
    row = first_row(source, options)
    is_header = options.text_column or usual_column((*kind.texts, *kind.ids), row)
    if len(row) == 2 and not is_header:
        options = dataclasses.replace(options, header=False)
    with open_records(source, options, default="text") as table:
        if table.columns:
            _columns(options, table.columns, table.location, kind)
        yield _documents(table.records, options, kind), table.fraction


def _documents(
    records: Iterator[Record], options: CollectionOptions, kind: _Kind
) -> Iterator[tuple[Document, str]]:
    keys: tuple[str, ...] | None = None
    has_ids: bool | None = None
    for number, record in enumerate(records):
        fields, location = record.fields, record.location
        if record.keys != keys:
            keys = record.keys
            id_column, text, title = _columns(options, keys, location, kind)
        if has_ids not in (None, bool(id_column)):
            problem = "no id" if has_ids else "an id, but the records before have none"
            raise UserError(f"{location}: the {kind.name} has {problem}; give every one its own")
        if has_ids is None and not id_column and (others := sorted({*keys} - {text, title})):
            say(
                f"{location}: no {kind.name} has an id, only the number of its record, from 0; if "
                f"a column has ids, name it as data.id_column (--id-column): {', '.join(others)}"
            )
        has_ids = bool(id_column)
        id = id_of(fields[id_column], location) if id_column else str(number)
        content = string_field(fields, text, location)
        heading = string_field(fields, title, location) if title else ""
        yield Document(id, content, heading), location


def _columns(
    options: CollectionOptions, names: tuple[str, ...], location: str, kind: _Kind
) -> tuple[str | None, str, str | None]:
    """The columns of id, text and title.

    Raises:
        OptionError: a configured column is missing, or no column has texts.
    """
    usual = {"id": kind.ids, "text": kind.texts, "title": ("title",)}
    if names == ("0", "1"):  # a table without a header
        usual |= {"id": ("0",), "text": ("1",)}
    id, text, title = (
        named_column(f"data.{name}_column", getattr(options, f"{name}_column"), names, location)
        or usual_column(usual[name], names)
        for name in usual
    )
    if text is None:
        raise no_usual_name(
            "data.text_column",
            f"a text ({', '.join(kind.texts)})",
            kind.texts,
            names,
            location,
            "set {data.text_column}, {data.id_column} and {data.title_column}",
        )
    return id, text, title


def id_of(value: Any, location: str) -> str:
    """An id from its text or whole number in a file.

    Raises:
        UserError: it is neither, or empty.
    """
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise UserError(f"{location}: the id is {value!r:.40}; give a text or a whole number")
    return str(value)


def _checked(
    located: Iterator[tuple[Document, str]],
    source: str | Path,
    options: CollectionOptions,
    kind: _Kind,
) -> Iterator[Document]:
    """Documents that are not empty and have an id of their own."""
    ids = UniqueIds()
    empty: list[str] = []
    for document, location in located:
        if not ids.add(document.id):
            with _located(source, options, kind) as (again, _):
                first = next(
                    (at for other, at in again if other.id == document.id), "another place"
                )
            raise UserError(
                f"{location}: the id {document.id!r:.80} was already used at {first}; give each "
                f"{kind.name} its own"
            )
        if (document.title + document.text).strip():
            yield document
        elif options.empty == "skip":
            empty.append(location)
        else:
            raise empty_error(f"{location}: the {kind.name} {document.id!r:.80}")
    if empty:
        say(f"empty texts left out: {len(empty)}; the first: {empty[0]}")


def empty_error(document: str) -> OptionError:
    """The error of an empty document, with its location in words."""
    rule = "give it a text, remove it, or leave it out with {data.empty=skip}"
    return OptionError("data.empty", "error", rule, f"{document} is empty")


def _paragraphs(source: str | Path, options: CollectionOptions) -> Iterator[tuple[Document, str]]:
    """The paragraphs of SQuAD's JSON; a text that occurs again is not repeated."""
    name, articles = read_json(source, options)
    texts: set[str] = set()
    for article_path, article in articles:
        title = string_field({"title": "", **article}, "title", f"{name}: {article_path}")
        for path, paragraph in items(name, article, f"{article_path}.paragraphs"):
            location = f"{name}: {path}"
            text = string_field(paragraph, "context", location)
            if text not in texts:
                texts.add(text)
                yield Document("-".join(re.findall(r"\d+", path)), text, page_name(title)), location


def _questions(source: str | Path, options: CollectionOptions) -> Iterator[tuple[Document, str]]:
    for question in read_questions(source, QuestionOptions(options.format)):
        yield Document(question.id, question.input.question), question.location


def page_name(title: str) -> str:
    """The title of an article of SQuAD with blanks; the file has the form of an address."""
    return title.replace("_", " ")
