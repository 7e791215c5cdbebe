"""Texts and pairs of texts: from tables, JSON lines, plain text, GLUE's files and data sets.

`read_texts` reads them for training and evaluation, `open_texts` for prediction; columns have the
same meaning in both.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.data.examples import Entries, Entry, TextExample
from bert_jax.data.readers.columns import ResolvedColumns, TextColumns, find_columns, record_id
from bert_jax.data.readers.glue import GlueLayout, glue_layout
from bert_jax.data.readers.labels import Labels
from bert_jax.data.readers.rows import Report, TableShape
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import FileOptions, Record, Table, TableOptions, string_field
from bert_jax.errors import OptionError, UserError, require_one_of
from bert_jax.process import say

Text = str | tuple[str, str]
"""A text, or a pair of texts."""

EMPTY = ("error", "keep")


@dataclasses.dataclass(frozen=True)
class TextOptions(FileOptions):
    """How a file of texts is read; keys of the same names in section `data`.

    Attributes:
        format: file format, see `TableOptions`; or "glue:NAME", one of GLUE's tasks with its own
            columns, see `glue.GLUE`, where the other options are ignored.
        text_column: column of the text: a name, or a number from 0; "": one with a usual name, see
            `columns.find_columns`.
        pair_column: column of the second text; "": none, or a usual name if `text_column` is ""
            too.
        label_column: column of the label; "": a usual name. A file without it has no labels.
        label_columns: several labels, each with a column of 0 and 1; (): see `label_column`.
        labels: names of the classes in the order of their numbers, see `labels`; (): the labels
            name themselves.
        id_column: column of the id; "": a usual name, else the number of the row.
        label_separator: separator of several labels in a row; "": a row has one label.
        empty: whether an empty text is an error ("error") or an example ("keep", with a count on
            stderr); in prediction it is always kept.
    """

    text_column: str = ""
    pair_column: str = ""
    label_column: str = ""
    label_columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    id_column: str = ""
    label_separator: str = ""
    empty: str = "error"

    def __post_init__(self) -> None:
        if self.layout is None:
            self.table()  # which checks format and quotes
        require_one_of("data.empty", self.empty, EMPTY)
        if self.label_columns and self.label_column:
            raise OptionError(
                "data.label_columns",
                self.label_columns,
                "leave out one of it and data.label_column",
            )

    @property
    def layout(self) -> GlueLayout | None:
        """The layout of a GLUE task; None: another file."""
        return glue_layout(self.format)

    @property
    def keeps_empty(self) -> bool:
        """Whether empty texts are examples, too; those of GLUE count in its published numbers."""
        return self.layout is not None or self.empty == "keep"

    @property
    def columns(self) -> TextColumns:
        """The configured columns."""
        if self.layout:
            return self.layout.columns
        return TextColumns(
            self.text_column,
            self.pair_column,
            self.label_column,
            self.id_column,
            tuple(map(str, self.label_columns)),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, which a command line may give as numbers."""
        return tuple(map(str, self.labels)) or (self.layout.classes if self.layout else ())

    def table(self, default: str = "") -> TableOptions:
        return self.layout.table if self.layout else super().table(default)


def read_texts(
    source: str | Path,
    options: TextOptions = TextOptions(),
    *,
    regression: bool = False,
    one_class: bool = False,
    needs_labels: bool = False,
    report: Report = TableShape.say,
) -> Iterator[TextExample]:
    """The examples of a file, in its order.

    A label is the text in its column; for a regression a float; for several classes a tuple, see
    `labels`. If the label column is missing, or empty from the first row on, the file has no
    labels, and each label is None.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        regression: whether labels are numbers.
        one_class: whether a label is one class, also if it looks like a list.
        needs_labels: whether missing labels are an error.
        report: see `Report`.

    Raises:
        UserError: the file cannot be read, a column is missing, or a row is malformed, lacks its
            label, or has an empty text; the message names file and line.
    """
    if options.layout:
        regression = options.layout.regression
        if is_dataset(source):
            raise OptionError(
                "data.format",
                options.format,
                "leave data.format empty",
                problem=f"format is {options.format!r}; it is for GLUE's files, but "
                f"{str(source)!r} names its columns itself",
            )
    labels: Labels | None = None
    examples: list[TextExample] = []
    empty: list[str] = []
    with open_records(source, options.table(), options.data_dir, report) as table:
        reader = TextReader(
            options.columns, table, regression=regression, needs_labels=needs_labels
        )
        for number, record in enumerate(table.records):
            entry = reader.entry(record, number)
            columns = reader.columns
            if labels is None:
                by_number = options.header and options.columns.label not in ("", columns.label)
                labels = Labels(
                    columns.classes or ((columns.label,) if columns.label else ()),
                    regression=regression,
                    one_class=one_class,
                    separator=options.label_separator,
                    names=options.names,
                    known=options.layout.classes if options.layout else (),
                    needed=needs_labels,
                    are_bits=bool(columns.classes),
                    header=(columns.label or "") if by_number else "",
                )
                # `Labels` decides whether a missing label is an error.
                allowed = (columns, columns.without_labels)
            if columns not in allowed:
                raise UserError(
                    f"{record.place}: the keys are {', '.join(map(repr, record.keys))}, those of "
                    "the first object mean another text, pair, label or id; give all the same"
                )
            text, pair = (entry.item, None) if isinstance(entry.item, str) else entry.item
            example = TextExample(text, pair, labels.read(record), entry.id, record.place)
            if is_empty(example):
                if not options.keeps_empty:
                    raise OptionError(
                        "data.empty",
                        options.empty,
                        "give it one, remove the row, or set data.empty=keep",
                        problem=f"{record.place}: the text is empty",
                    )
                empty.append(record.place)
            examples.append(example)
        _report(empty, "empty texts kept")
        _report(table.broken, "rows with a wrong number of columns skipped")
    if labels is not None:
        yield from labels.named(examples)


def is_empty(example: TextExample) -> bool:
    """Whether a text, or one of a pair, is empty or white space."""
    return not example.text.strip() or (example.pair is not None and not example.pair.strip())


@contextlib.contextmanager
def open_texts(source: str | Path, options: TextOptions = TextOptions()) -> Iterator[Entries[Text]]:
    """Opens an input of texts and pairs of texts to predict.

    Labels are columns like any other; empty texts are texts. Each JSON object has its own keys:
    some objects may have a pair, others none.

    Args:
        source: a file, also a compressed one; "-" for stdin; or "tfds:…".
        options: options of the reader; without `format` and a known file extension the input is
            plain text. An empty line of plain text is an empty text, so that lines and predictions
            match.

    Raises:
        UserError: the input cannot be opened; or, during iteration, a row is malformed.
    """
    # Every row is predicted.
    table = dataclasses.replace(options.table("text"), skip_broken=False)
    is_plain = table.format_of(source) == "text" and not is_dataset(source)
    with open_records(source, table, options.data_dir) as opened:
        columns = TextColumns() if is_plain else options.columns
        yield Entries(text_entries(opened, columns), opened.fraction)


def text_entries(table: Table, columns: TextColumns) -> Iterator[Entry[Text]]:
    """The entries of an input whose labels are columns like any other, see `open_texts`.

    Raises:
        UserError: the table is empty, or lacks a column.
    """
    if table.columns == ():
        raise UserError(f"{table.place}: the file is empty; a table begins with its columns' names")
    reader = TextReader(columns, table)
    return (reader.entry(record, number) for number, record in enumerate(table.records))


class TextReader:
    """Makes entries from records: separates text and pair from the other fields.

    Attributes:
        columns: the columns of the last record, or of the table.
    """

    columns: ResolvedColumns

    def __init__(
        self,
        named: TextColumns,
        table: Table | None = None,
        *,
        regression: bool = False,
        needs_labels: bool = False,
    ) -> None:
        """Finds the columns of a table; those of JSON are found object by object.

        Args:
            named: the columns that the options name.
            table: the input; if its columns have names, they hold for every record.
            regression: see `find_columns`.
            needs_labels: whether the table or the first object must have a label.

        Raises:
            OptionError: a column of the table is missing.
        """
        self._find = functools.partial(find_columns, named, regression=regression)
        self._needs_labels = needs_labels
        self._table_columns = table.columns if table else None
        self._names: tuple[str, ...] | None = None
        if table and table.columns:
            self._update(table.columns, table.place)

    def entry(self, record: Record, number: int) -> Entry[Text]:
        """The entry of a record; `number` counts from 0.

        Raises:
            UserError: the record has no text.
        """
        names = self._table_columns or record.keys
        if names != self._names:
            self._update(names, record.place)
        columns, fields, place = self.columns, record.fields, record.place
        taken = (columns.text, columns.pair)
        text = string_field(fields, columns.text, place)
        return Entry(
            text if columns.pair is None else (text, string_field(fields, columns.pair, place)),
            {key: value for key, value in fields.items() if key not in taken},
            place,
            record_id(fields, columns.id, number, place),
            columns.label or "",
            fields,
        )

    def _update(self, names: tuple[str, ...], place: str) -> None:
        self.columns = self._find(names, place, needs_labels=self._needs_labels)
        self._names, self._needs_labels = names, False  # from here on, see `Labels`


def _report(places: Sequence[str], what: str) -> None:
    if places:
        say(f"{len(places)} {what}; the first: {places[0]}")
