"""Texts to answer, row by row: JSON lines, tables and plain text."""

import contextlib
import csv
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.inference.interface import Text
from bert_jax.inference.lines import Lines, open_lines

TEXT, PAIR = "text", "text_pair"

_COMPRESSED = (".gz", ".zst")

# The longest field of a CSV file; the library's own limit is 128 KiB.
_FIELD_CHARACTERS = 1 << 26


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
        text: what is asked about.
        other: the remaining columns or keys, which the output takes over.
        place: "file:line", for errors.
    """

    text: Text
    other: dict[str, Any]
    place: str


class Rows:
    """The rows of an input, read once.

    Attributes:
        count: rows read so far.
    """

    def __init__(self, lines: Lines, rows: Iterator[Row]) -> None:
        """See `open_rows`."""
        self.count = 0
        self._lines = lines
        self._rows = rows

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.count += 1
            yield row

    def estimated_total(self) -> int | None:
        """How many rows the input has, judged by the bytes that are read; None: who knows."""
        fraction = self._lines.fraction()
        return round(self.count / fraction) if fraction and self.count else None


@contextlib.contextmanager
def open_rows(
    source: str | Path, columns: Columns = Columns(), form: str | None = None
) -> Iterator[Rows]:
    """Opens an input: UTF-8 with or without byte order mark, lines that end in LF or CRLF.

    Args:
        source: a file, also compressed with gzip or Zstandard, or "-" for stdin.
        columns: where the texts are.
        form: "jsonl", an object a line; "tsv" or "csv", a table whose first line names its columns;
            "text", a text a line. None: by the ending of the file's name, else "text".

    Raises:
        UserError: it cannot be opened; or, while rows are read, a row is malformed.
    """
    if form is not None and form not in FORMATS:
        raise UserError(f"input format {form!r} is unknown; known are {', '.join(FORMATS)}")
    with open_lines(source) as lines:
        read = FORMATS[form or _form_of(Path(source))]
        yield Rows(lines, read(lines, columns))


def _form_of(path: Path) -> str:
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in _COMPRESSED]
    last = endings[-1].removeprefix(".") if endings else ""
    if last in _NO_LINES:
        raise UserError(
            f"{path}: a file of this ending is none of {', '.join(FORMATS)}; convert it, or say "
            "with --input-format what it is"
        )
    return _ENDINGS.get(last, "text")


def _text_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    """One text a line; an empty line is an empty text, so that lines and answers correspond."""
    for number, line in lines:
        yield Row(_without_end(line), {}, f"{lines.name}:{number}")


def _json_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    """One object a line; blank lines are passed over."""
    for number, line in lines:
        if line.strip():
            place = f"{lines.name}:{number}"
            yield _row(_parse_object(line, place), columns, place)


def _tab_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    """Fields between tabs; a quotation mark is a character like any other, as in GLUE."""
    texts = ((number, _without_end(line)) for number, line in lines)
    fields = ((number, text.split("\t")) for number, text in texts if text)
    return _table_rows(lines.name, fields, columns)


def _comma_rows(lines: Lines, columns: Columns) -> Iterator[Row]:
    """Fields between commas; in quotation marks they may hold commas and line ends."""

    def fields() -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(_FIELD_CHARACTERS)
        reader = csv.reader((line for _, line in lines), strict=True)
        first = 1
        try:
            for found in reader:
                if found:
                    yield first, found
                first = reader.line_num + 1
        except csv.Error as error:
            raise UserError(f"{lines.name}:{first}: not valid CSV: {error}; mend it") from error

    return _table_rows(lines.name, fields(), columns)


FORMATS: dict[str, Callable[[Lines, Columns], Iterator[Row]]] = {
    "jsonl": _json_rows,
    "tsv": _tab_rows,
    "csv": _comma_rows,
    "text": _text_rows,
}


_ENDINGS = {**{form: form for form in FORMATS}, "ndjson": "jsonl"}
# Texts may end in anything, but these are no texts.
_NO_LINES = ("json", "parquet", "arrow", "xlsx", "xls", "npy", "npz", "pkl", "zip", "tar")


def _table_rows(
    name: str, numbered: Iterator[tuple[int, list[str]]], columns: Columns
) -> Iterator[Row]:
    """Rows of fields below a header; blank lines are passed over."""
    number, header = next(numbered, (1, []))
    for column in (columns.text, columns.pair):
        if column is not None and column not in header:
            raise _no_column(f"{name}:{number}", column, header)
    twice = [column for column in header if header.count(column) > 1]
    if twice:
        raise UserError(f"{name}:{number}: two columns are called {twice[0]!r}; rename one")
    for number, fields in numbered:
        place = f"{name}:{number}"
        if len(fields) != len(header):
            raise UserError(
                f"{place}: {len(fields)} fields, but the header has {len(header)}; mend the line"
            )
        yield _row(dict(zip(header, fields, strict=True)), columns, place)


def _row(fields: dict[str, Any], columns: Columns, place: str) -> Row:
    """Takes text and pair out of the fields of a row."""
    text = _take(fields, columns.text, place)
    if columns.pair is None and fields.get(PAIR) is None:
        fields.pop(PAIR, None)  # null says the same as nothing
        return Row(text, fields, place)
    return Row((text, _take(fields, columns.pair or PAIR, place)), fields, place)


def _take(fields: dict[str, Any], column: str, place: str) -> str:
    if column not in fields:
        raise _no_column(place, column, list(fields))
    text = fields.pop(column)
    if not isinstance(text, str):
        raise UserError(f"{place}: {column!r} is not a string but {type(text).__name__}")
    return text


def _no_column(place: str, column: str, there: list[str]) -> UserError:
    names = ", ".join(map(repr, there)) or "nothing"
    return UserError(
        f"{place}: there is no {column!r}, only {names}; "
        "say with text_column (and pair_column) where the text is"
    )


def _parse_object(line: str, place: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
        if "\\u" in line:
            # JSON can spell half of a surrogate pair ("\ud83d"), which no encoding can write.
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: half of a surrogate pair is no character; remove it") from error
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg}, column {error.colno}"
        raise UserError(f"{place}: not valid JSON: {reason}; mend or remove the line") from error
    if not isinstance(found, dict):
        raise UserError(f"{place}: not a JSON object but {type(found).__name__}; mend the line")
    return found


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
