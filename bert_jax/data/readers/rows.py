"""Things to answer, row by row, and the rows of texts: JSON lines, tables and plain text."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from bert_jax.data.readers.columns import FoundColumns, TextColumns, find_columns
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, format_of
from bert_jax.data.readers.texts import TextOptions
from bert_jax.errors import UserError

Item = TypeVar("Item")

_DEFAULTS = TextOptions()


@dataclasses.dataclass(frozen=True, slots=True)
class Row(Generic[Item]):
    """A row of an input.

    Attributes:
        item: what is asked about.
        other: the remaining columns or keys, which the output takes over.
        place: "file:line", for errors.
        id: as the row gives it, else its number from 0.
        gold: which of the other columns has the right answer; "": none that is known.
    """

    item: Item
    other: dict[str, Any]
    place: str
    id: str
    gold: str = ""


class Rows(Generic[Item]):
    """The rows of an input, read once.

    Attributes:
        count: rows read so far.
        fraction: tells how much of the input is read; None: who knows.
    """

    def __init__(
        self, rows: Iterable[Row[Item]], fraction: Callable[[], float | None] = lambda: None
    ) -> None:
        """Takes rows that are read while they are asked for."""
        self.count = 0
        self._rows = rows
        self.fraction = fraction

    def __iter__(self) -> Iterator[Row[Item]]:
        for row in self._rows:
            self.count += 1
            yield row

    def estimated_total(self) -> int | None:
        """How many rows the input has, judged by the bytes that are read; None: who knows."""
        fraction = self.fraction()
        return round(self.count / fraction) if fraction and self.count else None


@contextlib.contextmanager
def open_rows(
    source: str | Path, options: TextOptions = _DEFAULTS
) -> Iterator[Rows[str | tuple[str, str]]]:
    """Opens an input of texts and pairs of texts: UTF-8, lines that end in LF or CRLF.

    Labels are columns like any other; empty texts are texts. Each object of JSON has its own keys:
    some may have a pair, and others none.

    Args:
        source: a file, also compressed with gzip or Zstandard; "-" for stdin; or "tfds:…".
        options: as for training; an input whose format is neither told nor said by the ending of
            its name is plain text. An empty line is an empty text there, so that lines and answers
            correspond.

    Raises:
        UserError: it cannot be opened; or, while rows are read, a row is malformed.
    """
    table = dataclasses.replace(options.table, skip_broken=False)  # every row gets its answer
    if not is_dataset(source):
        table = dataclasses.replace(table, format=table.format or format_of(source) or "text")
    with open_records(source, table) as found:
        reader = TextReader(TextColumns() if table.format == "text" else options.columns)
        if found.columns is not None:
            if not found.columns:
                raise UserError(
                    f"{found.place}: the file is empty; a table begins with its columns' names"
                )
            reader.columns(found.columns, found.place)  # a wrong name is told before any row
        rows = (reader.row(record, number) for number, record in enumerate(found.records))
        yield Rows(rows, found.fraction)


class TextReader:
    """Takes text and pair out of the fields of records."""

    def __init__(self, told: TextColumns) -> None:
        """Takes what is known of the columns."""
        self._told = told
        self._found: tuple[tuple[str, ...], FoundColumns] | None = None

    def columns(self, there: tuple[str, ...], place: str) -> FoundColumns:
        """Which of some columns are what; those of the record before are remembered."""
        if self._found is None or self._found[0] != there:
            self._found = there, find_columns(self._told, there, place)
        return self._found[1]

    def row(self, record: Record, number: int) -> Row[str | tuple[str, str]]:
        """The row of a record; `number` counts from 0.

        Raises:
            UserError: there is no text.
        """
        # null says the same as nothing.
        there = tuple(key for key, value in record.fields.items() if value is not None)
        columns = self.columns(there, record.place)
        other = dict(record.fields)
        text = _take(other, columns.text, record.place)
        pair = None if columns.pair is None else _take(other, columns.pair, record.place)
        return Row(
            text if pair is None else (text, pair),
            other,
            record.place,
            str(number) if columns.id is None else str(record.fields[columns.id]),
            columns.label or "",
        )


def _take(fields: dict[str, Any], column: str, place: str) -> str:
    text = fields.pop(column)
    if not isinstance(text, str):
        raise UserError(f"{place}: {column!r} is not a string but {type(text).__name__}")
    return text
