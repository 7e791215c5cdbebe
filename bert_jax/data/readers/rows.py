"""The rows of TSV and CSV files, with warnings where several lines seem to be one row."""

import collections
import csv
import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from bert_jax.data.readers.lines import Lines
from bert_jax.errors import OptionError, UserError
from bert_jax.process import say

# Of CSV files; spreadsheets write semicolons where the comma is in numbers.
_SEPARATORS = ",;\t"
# The first line by which Excel is told the separator.
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)

# The length limit of a CSV field; the default of the `csv` module is 128 KiB.
_FIELD_CHARACTERS = 1 << 26

# Maximum number of rows of several lines that are checked, each against this number of other rows.
_RECENT_ROWS = 100

# Objects may have keys without end, as ids.
_MOST_COLUMNS = 1000

NumberedFields = Iterator[tuple[int, list[str]]]


@dataclasses.dataclass
class TableCounts:
    """Counts the lines, rows and columns of a file while it is read.

    Attributes:
        name: name of the file.
        lines: number of lines of the rows.
        rows: number of rows.
        swallowed: first line and number of lines of each quoted cell that seems to hold whole rows,
            see `_are_rows`.
        headers: numbers of the lines that repeat the header.
        columns: whether a column, or a key of an object, is read; {}: unknown.
        rejected: locations of the rows left out that a person has rejected.
    """

    name: str
    lines: int = 0
    rows: int = 0
    swallowed: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    headers: list[int] = dataclasses.field(default_factory=list)
    columns: dict[str, bool] = dataclasses.field(default_factory=dict)
    rejected: list[str] = dataclasses.field(default_factory=list)

    def note(self, columns: Iterable[str], read: Collection[str]) -> None:
        """Counts the columns of a record; a key is read, too, if one inside it is."""
        used = {*read, *(name.partition(".")[0] for name in read)}
        for column in columns:
            if column in self.columns or len(self.columns) < _MOST_COLUMNS:
                self.columns[column] = self.columns.get(column, False) or column in used

    @property
    def unread(self) -> tuple[str, ...]:
        """The columns that are not read."""
        return tuple(column for column, is_read in self.columns.items() if not is_read)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to report."""
        return self.lines == self.rows and not (self.unread or self.rejected)

    def shape(self) -> Iterator[str]:
        """The numbers of lines and rows, if they differ."""
        if self.lines != self.rows:
            yield f"{self.name}: {self.lines:,} lines → {self.rows:,} rows"

    def say(self) -> None:
        """Prints the warnings and both numbers to stderr."""
        say(*(f"warning: {warning}" for warning in self.warnings()), *self.shape())

    def warnings(self) -> Iterator[str]:
        """Probable mistakes in the file that make fewer rows than lines, and rows left out."""
        if self.swallowed:
            first, count = self.swallowed[0]
            yield (
                f"{self.name}:{first}: a quotation mark makes one row of {count} lines that look "
                f"like rows{_more(self.swallowed)}; if it is a character, double it and enclose "
                "the cell in others, or read them all as characters with data.quotes=none "
                "(predict --quotes none)"
            )
        if self.headers:
            yield (
                f"{self.name}:{self.headers[0]}: the line repeats the header and is skipped"
                f"{_more(self.headers)}; remove it"
            )
        if self.rejected:
            yield (
                f"{self.rejected[0]}: a person has rejected or skipped the row (Prodigy, Label "
                f"Studio), which is left out{_more(self.rejected)}"
            )


Report = Callable[[TableCounts], None]
"""Receives the counts of a file at its end."""


def table_rows(lines: Lines, form: str, quotes: str, counts: TableCounts) -> NumberedFields:
    """The fields of each row, with the number of its first line.

    Args:
        lines: the file.
        form: "tsv" or "csv".
        quotes: see `FileOptions`.
        counts: its `lines` and `swallowed` are set during iteration.

    Raises:
        OptionError: during iteration, a line is not valid CSV.
    """
    texts = (line for _, line in lines)
    if form == "csv":
        quoting = csv.QUOTE_NONE if quotes == "none" else csv.QUOTE_MINIMAL
        return _parsed(lines.name, *_with_delimiter(texts), quoting, counts)
    if quotes == "csv":
        return _parsed(lines.name, texts, "\t", csv.QUOTE_MINIMAL, counts)
    return _tab_fields(lines, quotes, counts)


def without_end(line: str) -> str:
    """A line without its line end."""
    return line.removesuffix("\n").removesuffix("\r")


def _tab_fields(lines: Lines, quotes: str, counts: TableCounts) -> NumberedFields:
    for number, line in lines:
        if text := without_end(line):
            fields = text.split("\t")
            counts.lines += 1
            yield number, fields if quotes == "none" else [_unquoted(field) for field in fields]


def _with_delimiter(texts: Iterator[str]) -> tuple[Iterator[str], str]:
    """The lines, and the separator of the first line that is not blank, or that it names."""
    beginning: list[str] = []
    for line in texts:
        beginning.append(line)
        if line.strip():
            break
    if beginning and (named := _SEPARATOR_LINE.fullmatch(without_end(beginning[-1]))):
        return itertools.chain([*beginning[:-1], "\n"], texts), named[1]
    outside = re.sub(r'"[^"]*("|$)', "", "".join(beginning))
    delimiter = next((mark for mark in _SEPARATORS if mark in outside), _SEPARATORS[0])
    return itertools.chain(beginning, texts), delimiter


def _parsed(
    name: str, texts: Iterable[str], delimiter: str, quoting: Any, counts: TableCounts
) -> NumberedFields:
    """Rows as read by the `csv` module, each with the number of its first line."""
    taken: list[str] = []  # the lines of a row

    def take() -> Iterator[str]:
        for text in texts:
            taken.append(text)
            yield text

    csv.field_size_limit(_FIELD_CHARACTERS)
    reader = csv.reader(take(), delimiter=delimiter, quoting=quoting, strict=True)
    recent: collections.deque[list[str]] = collections.deque(maxlen=_RECENT_ROWS)
    # Compared with the rows before, and with the last rows of the file.
    suspects: list[tuple[int, list[list[str]], list[list[str]]]] = []
    first, width = 1, 0
    try:
        for fields in reader:
            if fields:
                counts.lines += len(taken)
                if len(taken) == 1 and width:  # the first row may be a header
                    recent.append(fields)
                elif len(taken) > 1 and len(suspects) < _RECENT_ROWS:
                    rows = [without_end(line).split(delimiter) for line in taken]
                    if width > 1 and all(len(row) == width for row in rows):
                        suspects.append((first, rows, list(recent)))
                width = width or len(fields)
                yield first, fields
            first += len(taken)
            taken.clear()
    except csv.Error as error:
        is_escaped = any('\\"' in text for text in taken)
        rule = "write each quotation mark in a cell twice, not behind a backslash" * is_escaped
        raise OptionError(
            "data.quotes",
            None,
            f"{rule or 'fix it'}, or set {{data.quotes=none}} if quotation marks are characters",
            problem=f"{name}:{first}: not valid CSV: {error}",
        ) from error
    for start, rows, before in suspects:
        if _are_rows(rows, [row for row in (*before, *recent) if len(row) == width]):
            counts.swallowed.append((start, len(rows)))


def _are_rows(lines: Sequence[Sequence[str]], others: Collection[Sequence[str]]) -> bool:
    """Whether the lines of a row are rows themselves, if quotation marks are characters.

    A text may have lines with the number of separators of a row. So one of the columns must also
    look like this column in other rows: it has their values (classes), or numbers.

    Args:
        lines: fields of each line of the row.
        others: fields of rows of one line, the same number.
    """
    return any(
        set(usual).issuperset(values) or all(map(is_number, (*values, *usual)))
        for values, usual in zip(zip(*lines, strict=True), zip(*others, strict=True), strict=False)
    )


def is_number(text: str) -> bool:
    """Whether a text is a number, as Python reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_header(fields: Sequence[str], header: Sequence[str]) -> bool:
    """Whether a row repeats the header; a single field may be a value like its column's name."""
    is_same = fields[1:] == header[1:] and fields[0].removeprefix("\ufeff") == header[0]
    return is_same and len(header) > 1


def fitted(fields: list[str], width: int, named: int) -> list[str]:
    """A row of a table whose last columns are nameless and empty, as of spreadsheets.

    Args:
        fields: the fields of the row.
        width: number of columns of the header.
        named: number of its columns up to the last one that has a name.

    Returns:
        The fields, with as many empty ones at the end as the header has; or, where this is not
        enough for the same width, unchanged.
    """
    if len(fields) == width or len(fields) < named or any(fields[width:]):
        return fields
    return (fields + [""] * width)[:width]


def wrong_width(fields: Sequence[str], expected: str, location: str) -> UserError:
    """The error of a row with a wrong number of columns."""
    # Usually the cause is that quotation marks were treated as ordinary characters.
    torn = any(field.count('"') % 2 for field in fields)
    hint = "; if quotation marks hold tabs or line ends together, set {data.quotes=csv}"
    return OptionError(
        "data.quotes",
        None,
        "fix the line" + (hint if torn else ""),
        problem=f"{location}: {len(fields)} fields, but {expected}",
    )


def _more(occurrences: Sequence[object]) -> str:
    return f" (and {len(occurrences) - 1:,} more)" if occurrences[1:] else ""


def _unquoted(field: str) -> str:
    """A field without the quotation marks that a spreadsheet adds around it."""
    if len(field) < 2 or not (field[0] == field[-1] == '"'):
        return field
    inner = field[1:-1]
    return field if '"' in inner.replace('""', "") else inner.replace('""', '"')
