"""Texts to answer, row by row: JSON lines, tables and plain text."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.data.tables import Record, Table, TableOptions, format_of, open_table
from bert_jax.errors import UserError

TEXT, PAIR = "text", "text_pair"

FORMATS = ("jsonl", "tsv", "csv", "text")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns of a table, or keys of an object, are texts.

    Attributes:
        text: that of the text.
        pair: that of its pair; None: `text_pair`, where there is one.
    """

    text: str = TEXT
    pair: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A row of the input.

    Attributes:
        text: what is asked about: a text, or a text and its pair.
        other: the remaining columns or keys, which the output takes over.
        place: "file:line", for errors.
    """

    text: str | tuple[str, str]
    other: dict[str, Any]
    place: str


class Rows:
    """The rows of an input, read once.

    Attributes:
        count: rows read so far.
    """

    def __init__(self, table: Table, columns: Columns) -> None:
        """See `open_rows`."""
        self.count = 0
        self._table = table
        self._columns = columns

    def __iter__(self) -> Iterator[Row]:
        for record in self._table.records:
            self.count += 1
            yield _row(record, self._columns)

    def estimated_total(self) -> int | None:
        """How many rows the input has, judged by the bytes that are read; None: who knows."""
        fraction = self._table.fraction()
        return round(self.count / fraction) if fraction and self.count else None


@contextlib.contextmanager
def open_rows(
    source: str | Path,
    columns: Columns = Columns(),
    form: str | None = None,
    quotes: str = "none",
) -> Iterator[Rows]:
    """Opens an input: UTF-8 with or without byte order mark, lines that end in LF or CRLF.

    Args:
        source: a file, also compressed with gzip or Zstandard, or "-" for stdin.
        columns: where the texts are.
        form: "jsonl", an object a line; "tsv" or "csv", a table whose first line names its columns;
            "text", a text a line; an empty line is an empty text there, so that lines and answers
            correspond. None: by the ending of the file's name, else "text".
        quotes: what quotation marks in TSV mean, see `TableOptions`.

    Raises:
        UserError: it cannot be opened; or, while rows are read, a row is malformed.
    """
    if form is not None and form not in FORMATS:
        raise UserError(f"input format {form!r} is unknown; known are {', '.join(FORMATS)}")
    form = form or format_of(source) or "text"
    if form == "csv":
        quotes = "csv"
    with open_table(source, TableOptions(form, quotes=quotes)) as table:
        if form == "text":
            columns = Columns()
        for column in (columns.text, columns.pair):
            if table.columns is not None and column is not None and column not in table.columns:
                raise _no_column(table.place, column, list(table.columns))
        yield Rows(table, columns)


def _row(record: Record, columns: Columns) -> Row:
    """Takes text and pair out of the fields of a record."""
    text = _take(record, columns.text)
    if columns.pair is None and record.fields.get(PAIR) is None:
        record.fields.pop(PAIR, None)  # null says the same as nothing
        return Row(text, record.fields, record.place)
    return Row((text, _take(record, columns.pair or PAIR)), record.fields, record.place)


def _take(record: Record, column: str) -> str:
    if column not in record.fields:
        raise _no_column(record.place, column, list(record.fields))
    text = record.fields.pop(column)
    if not isinstance(text, str):
        raise UserError(f"{record.place}: {column!r} is not a string but {type(text).__name__}")
    return text


def _no_column(place: str, column: str, there: list[str]) -> UserError:
    names = ", ".join(map(repr, there)) or "nothing"
    return UserError(
        f"{place}: there is no {column!r}, only {names}; "
        "say with text_column (and pair_column) where the text is"
    )
