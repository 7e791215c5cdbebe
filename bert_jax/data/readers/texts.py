"""Texts and pairs of texts: from tables, JSON lines, plain text, GLUE's files and data sets.

`read_texts` reads them to train and evaluate, `open_texts` to predict; a column means the same to
both.
"""

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Entries, Entry, TextExample
from bert_jax.data.readers.columns import (
    Labels,
    ResolvedColumns,
    TextColumns,
    find_columns,
    record_id,
)
from bert_jax.data.readers.glue import GlueLayout, glue_layout
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, TableOptions, format_of
from bert_jax.errors import OptionError, UserError

Text = str | tuple[str, str]
"""A text, or a text and its pair."""

EMPTY = ("error", "keep")


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How a file of texts is read; the keys of the same names in section `data`.

    Attributes:
        format: see `TableOptions`; or "glue:NAME", one of GLUE's tasks with its own columns, see
            `glue.GLUE`, where the other options are ignored.
        header: whether the first line of a table names its columns.
        quotes: the meaning of quotation marks in a table, see `TableOptions`.
        text_column: the column of the text: a name, or a number from 0; "": one with a usual name,
            see `columns.find_columns`.
        pair_column: that of its pair; "": none, or of a usual name where `text_column` is "" too.
        label_column: that of the label; "": one with a usual name. A file without it has no labels.
        id_column: that of the id; "": one with a usual name, else the number of the row.
        label_separator: between the labels of a row that may have several; "": it has one.
        empty: whether an empty text is an error ("error") or an example ("keep", with a count on
            stderr); to predict, it is always kept.
        data_dir: of "tfds:" sources, where data sets are prepared; None: TensorFlow Datasets'
            default.
    """

    format: str = ""
    header: bool = True
    quotes: str = "auto"
    text_column: str = ""
    pair_column: str = ""
    label_column: str = ""
    id_column: str = ""
    label_separator: str = ""
    empty: str = "error"
    data_dir: str | None = None

    def __post_init__(self) -> None:
        if self.layout is None:
            TableOptions(self.format, quotes=self.quotes)  # which checks them
        if self.empty not in EMPTY:
            raise OptionError("empty", self.empty, f"known are {', '.join(EMPTY)}")

    @property
    def layout(self) -> GlueLayout | None:
        """That of a task of GLUE; None: another file."""
        return glue_layout(self.format)

    @property
    def keeps_empty(self) -> bool:
        """Whether empty texts are examples too; those of GLUE count in its published numbers."""
        return self.layout is not None or self.empty == "keep"

    @property
    def columns(self) -> TextColumns:
        """The configured columns."""
        if self.layout:
            return self.layout.columns
        return TextColumns(self.text_column, self.pair_column, self.label_column, self.id_column)

    @property
    def table(self) -> TableOptions:
        """How fields are read."""
        if self.layout:
            return self.layout.table
        return TableOptions(self.format, header=self.header, quotes=self.quotes)


def read_texts(
    source: str | Path,
    options: TextOptions = TextOptions(),
    *,
    regression: bool = False,
    needs_labels: bool = False,
) -> Iterator[TextExample]:
    """The examples of a file, in its order.

    A label is the text in its column; for a regression a float; a tuple where `label_separator`
    is set or JSON has a list. A file whose label column is missing, or empty from the first row
    on, has no labels: they are None.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: how it is read.
        regression: whether labels are numbers.
        needs_labels: whether it is an error that there are none.

    Raises:
        UserError: the file cannot be read, a column is missing, or a row is malformed, lacks its
            label, or has an empty text; names file and line.
    """
    if options.layout:
        regression = options.layout.regression
        if is_dataset(source):
            raise OptionError(
                "format",
                options.format,
                "leave {format} empty",
                problem=f"format is {options.format!r}; it is for GLUE's files, but "
                f"{str(source)!r} names its columns itself",
            )
    with open_records(source, options.table, options.data_dir) as table:
        records = iter(table.records)
        first = next(records, None)
        present = table.columns or (_keys(first) if first else ())
        if not present:
            return
        place = table.place or (first.place if first else "")
        columns = find_columns(
            options.columns, present, place, regression=regression, needs_labels=needs_labels
        )
        labels = _labels(columns, options, regression=regression, needed=needs_labels)
        records = itertools.chain([first] if first else [], records)
        if table.columns is None:
            records = _uniform(records, columns, options.columns, regression)
        empty: list[str] = []
        for number, record in enumerate(records):
            text = _text(record, columns.text)
            pair = None if columns.pair is None else _text(record, columns.pair)
            id = record_id(record, columns.id, number)
            example = TextExample(text, pair, labels.read(record), id, record.place)
            if is_empty(example):
                if not options.keeps_empty:
                    raise OptionError(
                        "empty",
                        options.empty,
                        "give it one, remove the row, or set {empty=keep}",
                        problem=f"{record.place}: the text is empty",
                    )
                empty.append(record.place)
            yield example
        _report(empty, "empty texts kept")
        _report(table.broken, "rows with a wrong number of columns skipped")


def is_empty(example: TextExample) -> bool:
    """Whether a text or its pair is empty or white space."""
    return not example.text.strip() or (example.pair is not None and not example.pair.strip())


@contextlib.contextmanager
def open_texts(source: str | Path, options: TextOptions = TextOptions()) -> Iterator[Entries[Text]]:
    """Opens an input of texts and pairs of texts to predict.

    Labels are columns like any other; empty texts are texts. Each object of JSON has its own keys:
    some may have a pair, and others none.

    Args:
        source: a file, also compressed with gzip or Zstandard; "-" for stdin; or "tfds:…".
        options: how it is read; without `format` and a known ending of the name it is plain text.
            An empty line is an empty text there, so that lines and predictions correspond.

    Raises:
        UserError: it cannot be opened; or, while rows are read, a row is malformed.
    """
    table = dataclasses.replace(options.table, skip_broken=False)  # every row is predicted
    if not is_dataset(source):
        table = dataclasses.replace(table, format=table.format or format_of(source) or "text")
    with open_records(source, table, options.data_dir) as opened:
        reader = TextReader(TextColumns() if table.format == "text" else options.columns)
        if opened.columns is not None:
            if not opened.columns:
                raise UserError(
                    f"{opened.place}: the file is empty; a table begins with its columns' names"
                )
            reader.columns(opened.columns, opened.place)  # a wrong name is an error before any row
        entries = (reader.entry(record, number) for number, record in enumerate(opened.records))
        yield Entries(entries, opened.fraction)


class TextReader:
    """Makes entries of records: takes text and pair out of the fields."""

    def __init__(self, named: TextColumns) -> None:
        self._named = named
        self._known: tuple[tuple[str, ...], ResolvedColumns] | None = None

    def columns(self, present: tuple[str, ...], place: str) -> ResolvedColumns:
        """The columns among those present; the last ones are cached."""
        if self._known is None or self._known[0] != present:
            self._known = present, find_columns(self._named, present, place)
        return self._known[1]

    def entry(self, record: Record, number: int) -> Entry[Text]:
        """The entry of a record; `number` counts from 0.

        Raises:
            UserError: there is no text.
        """
        columns = self.columns(_keys(record), record.place)
        taken = (columns.text, columns.pair)
        other = {key: value for key, value in record.fields.items() if key not in taken}
        text = _text(record, columns.text)
        return Entry(
            text if columns.pair is None else (text, _text(record, columns.pair)),
            other,
            record.place,
            str(number) if columns.id is None else str(record.fields[columns.id]),
            columns.label or "",
        )


def _uniform(
    records: Iterator[Record], columns: ResolvedColumns, named: TextColumns, regression: bool
) -> Iterator[Record]:
    """Objects of JSON, each with its own keys: none may have a text or label that is not read."""
    known: tuple[str, ...] = ()
    for record in records:
        keys = _keys(record)
        if keys != known:
            own = find_columns(named, keys, record.place, regression=regression)
            if own.label is None:  # `Labels` decides whether that is an error
                own = dataclasses.replace(own, label=columns.label)
            if own != columns:
                raise UserError(
                    f"{record.place}: the keys are {', '.join(map(repr, keys))}, those of the "
                    "first object mean another text, pair, label or id; give all the same"
                )
            known = keys
        yield record


def _keys(record: Record) -> tuple[str, ...]:
    """The keys of an object; null means that a key is missing."""
    return tuple(key for key, value in record.fields.items() if value is not None)


def _labels(
    columns: ResolvedColumns, options: TextOptions, *, regression: bool, needed: bool
) -> Labels:
    by_number = options.header and options.columns.label not in ("", columns.label)
    return Labels(
        columns.label,
        regression=regression,
        separator=options.label_separator,
        classes=options.layout.classes if options.layout else (),
        needed=needed,
        header_label=(columns.label or "") if by_number else "",
    )


def _text(record: Record, column: str) -> str:
    text: Any = record.fields.get(column)
    if not isinstance(text, str):
        what = type(text).__name__ if column in record.fields else "missing"
        raise UserError(f"{record.place}: {column!r} is not a string but {what}; fix the row")
    return text


def _report(places: Sequence[str], what: str) -> None:
    if places:
        print(f"{len(places)} {what}; the first: {places[0]}", file=sys.stderr)
