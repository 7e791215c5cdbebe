"""Labelled texts and pairs of texts: from tables, JSON lines, GLUE's files and data sets."""

import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.data.examples import TextExample
from bert_jax.data.readers.columns import FoundColumns, TextColumns, find_columns, record_id
from bert_jax.data.readers.glue import GlueLayout, glue_layout
from bert_jax.data.readers.labels import Labels
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, TableOptions
from bert_jax.errors import OptionError, UserError

EMPTY = ("error", "keep")


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How a file of labelled texts is read; the keys of the same names in section `data`.

    Attributes:
        format: see `TableOptions`; or "glue:NAME", one of GLUE's tasks with its own columns, see
            `glue.GLUE`, where the other options are passed over.
        header: whether the first line of a table names its columns.
        quotes: what quotation marks mean in a table, see `TableOptions`.
        text_column: the column of the text: a name, or a number from 0; "": one with a usual name,
            see `columns.find_columns`.
        pair_column: that of its pair; "": none, or of a usual name where `text_column` is "" too.
        label_column: that of the label; "": one with a usual name. A file without it has no labels.
        id_column: that of the id; "": one with a usual name, else the number of the row.
        label_separator: between the labels of a row that may have several; "": it has one.
        empty: what becomes of an empty text: "error", or "keep", with a count on stderr.
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
        """That of a task of GLUE; None: the file is the user's own."""
        return glue_layout(self.format)

    @property
    def keeps_empty(self) -> bool:
        """Whether empty texts are examples too; those of GLUE count in its published numbers."""
        return self.layout is not None or self.empty == "keep"

    @property
    def columns(self) -> TextColumns:
        """The columns as they are told."""
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
        UserError: the file cannot be read, a column is not there, or a row is malformed, lacks
            its label, or has an empty text; names file and line.
    """
    if options.layout:
        regression = options.layout.regression
        if is_dataset(source):
            raise OptionError(
                "format",
                options.format,
                f"it is for GLUE's files, but {str(source)!r} names its columns itself; leave it "
                "empty",
            )
    with open_records(source, options.table, options.data_dir) as table:
        rows = iter(table.records)
        first = next(rows, None)
        there = table.columns or (_keys(first) if first else ())
        if not there:
            return
        place = table.place or (first.place if first else "")
        columns = find_columns(
            options.columns, there, place, regression=regression, needs_labels=needs_labels
        )
        labels = _labels(columns, options, regression=regression, needed=needs_labels)
        records: Iterator[Record] = itertools.chain([first] if first else [], rows)
        if table.columns is None:
            records = _of_one_form(records, columns, options.columns, regression)
        empty: list[str] = []
        for number, record in enumerate(records):
            example = _example(record, columns, labels, number)
            if is_empty(example):
                if not options.keeps_empty:
                    raise OptionError(
                        "empty",
                        options.empty,
                        "give it one, remove the row, or set {empty=keep}",
                        f"{record.place}: the text is empty",
                    )
                empty.append(record.place)
            yield example
        _report(empty, "empty texts kept")
        _report(table.broken, "rows with a wrong number of columns passed over")


def is_empty(example: TextExample) -> bool:
    """Whether a text or its pair has nothing but white space."""
    return not example.text.strip() or (example.pair is not None and not example.pair.strip())


def _of_one_form(
    records: Iterator[Record], columns: FoundColumns, told: TextColumns, regression: bool
) -> Iterator[Record]:
    """Objects of JSON, each with its own keys: none may hold something that is not read."""
    known: tuple[str, ...] = ()
    for record in records:
        keys = _keys(record)
        if keys != known:
            found = find_columns(told, keys, record.place, regression=regression)
            if found.label is None:  # what that means is for `Labels` to say
                found = dataclasses.replace(found, label=columns.label)
            if found != columns:
                raise UserError(
                    f"{record.place}: the keys are {', '.join(map(repr, keys))}, those of the "
                    "first object mean another text, pair, label or id; give all the same"
                )
            known = keys
        yield record


def _keys(record: Record) -> tuple[str, ...]:
    """The keys of an object that are not null, which says the same as nothing."""
    return tuple(key for key, value in record.fields.items() if value is not None)


def _labels(
    columns: FoundColumns, options: TextOptions, *, regression: bool, needed: bool
) -> Labels:
    by_number = options.header and options.columns.label not in ("", columns.label)
    return Labels(
        columns.label,
        regression=regression,
        separator=options.label_separator,
        classes=options.layout.classes if options.layout else (),
        needed=needed,
        suspect=(columns.label or "") if by_number else "",
    )


def _example(record: Record, columns: FoundColumns, labels: Labels, number: int) -> TextExample:
    text = _text(record, columns.text)
    pair = None if columns.pair is None else _text(record, columns.pair)
    id = record_id(record, columns.id, number)
    return TextExample(text, pair, labels.read(record), id, record.place)


def _text(record: Record, column: str) -> str:
    text = record.fields.get(column)
    if not isinstance(text, str):
        what = type(text).__name__ if column in record.fields else "missing"
        raise UserError(f"{record.place}: {column!r} is not a string but {what}; mend the row")
    return text


def _report(places: Sequence[str], what: str) -> None:
    if places:
        print(f"{len(places)} {what}; the first: {places[0]}", file=sys.stderr)
