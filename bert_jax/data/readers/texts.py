"""Texts and pairs of texts: from tables, JSON lines, plain text, GLUE's files and data sets.

`read_texts` reads them for training and evaluation, `open_texts` for prediction; `TextParser` makes
the examples of both.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Example, Examples, Text, texts_of
from bert_jax.data.readers.columns import TextColumns, TextOptions, find_columns
from bert_jax.data.readers.labels import Labels
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.tables import (
    Record,
    Table,
    format_of,
    is_dataset,
    open_records,
    string_field,
)
from bert_jax.errors import OptionError, UserError
from bert_jax.process import say

_DEFAULTS = TextOptions()


class TextParser:
    """Makes examples of records: separates text and pair from the other fields."""

    def __init__(self, options: TextOptions, *, regression: bool = False) -> None:
        """Takes the columns that a user names, and whether the label is a number."""
        self._options, self._regression = options.resolved(), regression
        # The names of the last record and their columns: most records have the same.
        self._cached: tuple[tuple[str, ...], TextColumns] | None = None

    def columns(self, names: tuple[str, ...], location: str) -> TextColumns:
        """The columns of a table or an object with these names, see `find_columns`.

        Raises:
            OptionError: a column is missing.
        """
        if self._cached is None or names != self._cached[0]:
            columns = find_columns(self._options, names, location, regression=self._regression)
            self._cached = names, columns
        return self._cached[1]

    def __call__(self, record: Record, number: int) -> Example[Text]:
        """The example of a record, without its label; `number` counts from 0.

        Raises:
            UserError: the record has no text.
        """
        fields, location = record.fields, record.location
        columns = self.columns(record.keys, location)
        return Example(
            _input(fields, columns, location),
            None,
            record.id(columns.id, number),
            location,
            {name: fields[name] for name in fields if name not in columns.texts},
            columns.label or "",
            fields,
            read=columns.names,
        )


def _input(fields: Mapping[str, Any], columns: TextColumns, location: str) -> Text:
    """The text of a record, or its pair: two columns, or a list of two in one."""
    first = fields.get(columns.text)
    if columns.pair is not None or not isinstance(first, list):
        texts = [string_field(fields, name, location) for name in columns.texts]
    elif len(first) == 2 and all(isinstance(text, str) for text in first):
        texts = first
    else:
        raise UserError(
            f"{location}: {columns.text!r} is a list, but not of two texts, which are a pair; fix "
            "the row"
        )
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def read_texts(
    source: str | Path,
    options: TextOptions = _DEFAULTS,
    *,
    regression: bool = False,
    one_class: bool = False,
    needs_labels: bool = False,
    report: Report = TableCounts.say,
) -> Iterator[Example[Text]]:
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
    layout = options.layout
    options = options.resolved()
    regression = layout.regression if layout else regression
    labels: Labels | None = None
    examples: list[Example[Text]] = []
    empty: list[str] = []
    with open_records(
        source,
        options,
        report,
        headless=layout.headless if layout else (),
        skip_broken=layout is not None and layout.has_broken_rows,
    ) as table:
        parse = TextParser(options, regression=regression)
        if table.columns:
            parse.columns(table.columns, table.location)
        for number, record in enumerate(table.records):
            example = parse(record, number)
            if not (layout or table.accepts(record, example)):
                continue
            columns = parse.columns(record.keys, record.location)
            if labels is None:
                if needs_labels:
                    location = table.location or record.location
                    columns.require_labels(options, record.keys, location)
                labels = Labels(options, columns, regression, one_class, needs_labels)
                # `Labels` decides whether a missing label is an error.
                allowed = (columns, columns.without_labels)
            if columns not in allowed:
                raise UserError(
                    f"{record.location}: the keys are {', '.join(map(repr, record.keys))}, but the "
                    "first object has another text, pair, label or id key; give all objects the "
                    "same"
                )
            if not all(map(str.strip, texts_of(example.input))):
                if options.empty != "keep":
                    raise OptionError(
                        "data.empty",
                        options.empty,
                        "give it one, remove the row, or set {data.empty=keep}",
                        problem=f"{record.location}: the text is empty",
                    )
                empty.append(record.location)
            examples.append(example.labelled(labels.read(record)))
    for locations, kind in (
        (empty, "empty texts kept"),
        (table.broken, "rows with a wrong number of columns skipped"),
    ):
        if locations:
            say(f"{len(locations)} {kind}; the first: {locations[0]}")
    if labels is not None:
        yield from labels.named(examples)


@contextlib.contextmanager
def open_texts(source: str | Path, options: TextOptions = _DEFAULTS) -> Iterator[Examples[Text]]:
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
    headless = options.layout.headless if options.layout else ()
    options = options.resolved()
    is_plain = not is_dataset(source) and (options.format or format_of(source) or "text") == "text"
    with open_records(source, options, default="text", headless=headless) as table:
        yield text_examples(table, _DEFAULTS if is_plain else options)


def text_examples(table: Table, options: TextOptions) -> Examples[Text]:
    """The examples of an input whose labels are columns like any other, see `open_texts`.

    Raises:
        UserError: the table is empty, or lacks a column.
    """
    if table.columns == ():
        raise UserError(
            f"{table.location}: the file is empty; a table begins with its columns' names"
        )
    parse = TextParser(options)
    if table.columns:
        parse.columns(table.columns, table.location)
    return table.examples(parse)
