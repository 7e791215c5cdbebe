"""Records of a file, field by field: JSON lines, TSV and CSV tables, lines of text."""

import contextlib
import csv
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.readers.lines import Lines, open_lines
from bert_jax.errors import OptionError, UserError

FORMATS = ("jsonl", "tsv", "csv", "text", "label_text")
QUOTES = ("auto", "none", "csv")

_COMPRESSED = (".gz", ".zst")
_ENDINGS = {"jsonl": "jsonl", "ndjson": "jsonl", "tsv": "tsv", "csv": "csv"}
# Text files may have any ending but these.
_NO_LINES = ("json", "parquet", "arrow", "xlsx", "xls", "npy", "npz", "pkl", "zip", "tar")

# The longest field of a CSV file; the library's own limit is 128 KiB.
_FIELD_CHARACTERS = 1 << 26

NumberedFields = Iterator[tuple[int, list[str]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A row of a table, or an object of JSON.

    Attributes:
        fields: the values by column or key; those of a table are text.
        place: "file:line", for errors.
    """

    fields: dict[str, Any]
    place: str


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """How a file is read.

    Attributes:
        format: "jsonl", an object a line; "tsv" or "csv", a table; "text", a text a line;
            "label_text", a label, a blank and a text a line. "": by the ending of the file's name.
        header: whether the first line of a table names its columns; else they are "0", "1", ….
        columns: the names of the columns, of a table whose first line need not name them: it does
            where one of its fields is one of these names. Overrides `header`.
        quotes: the meaning of quotation marks around a field of a table. "csv": they are removed,
            and separators and line ends between them belong to the field. "none": they are
            characters like any other, as in GLUE. "auto": as "csv" in CSV; in TSV they are removed
            where a field begins and ends with one and all between them are doubled, and kept
            everywhere else.
        skip_broken: whether rows with a wrong number of columns are skipped and counted; else they
            are errors.
    """

    format: str = ""
    header: bool = True
    columns: tuple[str, ...] = ()
    quotes: str = "auto"
    skip_broken: bool = False

    def __post_init__(self) -> None:
        for key, known in (("format", ("", *FORMATS)), ("quotes", QUOTES)):
            value = getattr(self, key)
            if value not in known:
                names = ", ".join(name for name in known if name)
                raise OptionError(key, value, f"known are {names}")


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """The records of an input, to be read once.

    Attributes:
        records: in their order; while they are read, a malformed one raises.
        columns: the names of the columns; None: each record has its own, as in JSON.
        place: where they are named, "file:line".
        broken: the places of rows with another number of columns, which were skipped so far.
        fraction: returns the share of the input that is read; None where it is unknown.
    """

    records: Iterator[Record]
    columns: tuple[str, ...] | None = None
    place: str = ""
    broken: Sequence[str] = ()
    fraction: Callable[[], float | None] = lambda: None


@contextlib.contextmanager
def open_table(source: str | Path, options: TableOptions = TableOptions()) -> Iterator[Table]:
    """Opens a file: UTF-8 with or without byte order mark, lines that end in LF or CRLF.

    Blank lines are skipped, except in "text", where they are empty texts.

    Args:
        source: a file, also compressed with gzip or Zstandard, or "-" for stdin.
        options: how it is read.

    Raises:
        UserError: it cannot be opened, or its ending stands for no format; or, while records are
            read, one is malformed.
    """
    form = options.format or format_of(source)
    if not form:
        raise OptionError(
            "format",
            None,
            f"set {{format}} to one of {', '.join(FORMATS)}",
            problem=f"{source}: its ending does not say what it is",
        )
    with open_lines(source) as lines:
        if form == "jsonl":
            yield Table(_objects(lines), fraction=lines.fraction)
        elif form in _LINES:
            columns, read = _LINES[form]
            records = _records(lines.name, read(lines), columns, "a line has", None)
            yield Table(records, columns, f"{lines.name}:1", fraction=lines.fraction)
        else:
            rows = (_tab_fields if form == "tsv" else _comma_fields)(lines, options.quotes)
            yield _table(lines, rows, options)


def format_of(source: str | Path) -> str:
    """The format that the ending of a file's name stands for, "" for none.

    Raises:
        OptionError: files with this ending are not text.
    """
    endings = [ending.lower() for ending in Path(source).suffixes]
    endings = [ending for ending in endings if ending not in _COMPRESSED]
    last = endings[-1].removeprefix(".") if endings else ""
    if last in _NO_LINES:
        raise OptionError(
            "format",
            None,
            "convert it, or set {format}",
            problem=f"{source}: a file of this ending is none of {', '.join(FORMATS)}",
        )
    return _ENDINGS.get(last, "")


def _table(lines: Lines, rows: NumberedFields, options: TableOptions) -> Table:
    number, first = next(rows, (1, []))
    place = f"{lines.name}:{number}"
    if options.columns:
        header, columns = bool(set(first) & set(options.columns)), options.columns
    else:
        header, columns = options.header, tuple(str(index) for index in range(len(first)))
    if header:
        columns = tuple(first)
    elif first:
        rows = itertools.chain([(number, first)], rows)
    twice = [column for column in columns if columns.count(column) > 1]
    if twice:
        raise UserError(f"{place}: two columns have the name {twice[0]!r}; rename one")
    broken: list[str] = []
    kept = broken if options.skip_broken else None
    origin = "the header has" if header else "the first row has"
    records = _records(lines.name, rows, columns, origin, kept)
    return Table(records, columns, place, broken, lines.fraction)


def _records(
    name: str,
    rows: NumberedFields,
    columns: tuple[str, ...],
    origin: str,
    broken: list[str] | None,
) -> Iterator[Record]:
    """Gives the fields of each row their names; see `Table.broken`."""
    for number, fields in rows:
        place = f"{name}:{number}"
        if len(fields) == len(columns):
            yield Record(dict(zip(columns, fields, strict=True)), place)
        elif broken is None:
            raise _wrong_width(fields, f"{origin} {len(columns)}", place)
        else:
            broken.append(place)


def _objects(lines: Lines) -> Iterator[Record]:
    for number, line in lines:
        if line.strip():
            place = f"{lines.name}:{number}"
            fields = parse_object(line, place)
            if "\\u" in line:
                _check_characters(fields, place)
            yield Record(fields, place)


def _check_characters(fields: dict[str, Any], place: str) -> None:
    r"""JSON can spell half of a surrogate pair ("\ud83d"), which no encoding can write."""
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{place}: half of a surrogate pair is not a character; remove it"
        ) from error


def _texts(lines: Lines) -> NumberedFields:
    return ((number, [_without_end(line)]) for number, line in lines)


def _labels_and_texts(lines: Lines) -> NumberedFields:
    for number, line in lines:
        if not line.strip():
            continue
        label, blank, text = _without_end(line).partition(" ")
        if not blank:
            raise UserError(
                f"{lines.name}:{number}: {line.strip()!r:.40} is one word, but a line is a label, "
                "a blank and a text; fix the line"
            )
        yield number, [label, text]


_LINES: dict[str, tuple[tuple[str, ...], Callable[[Lines], NumberedFields]]] = {
    "text": (("text",), _texts),
    "label_text": (("label", "text"), _labels_and_texts),
}


def _tab_fields(lines: Lines, quotes: str) -> NumberedFields:
    if quotes == "csv":
        yield from _parsed(lines, delimiter="\t")
        return
    for number, line in lines:
        if text := _without_end(line):
            fields = text.split("\t")
            yield number, fields if quotes == "none" else [_unquoted(field) for field in fields]


def _comma_fields(lines: Lines, quotes: str) -> NumberedFields:
    return _parsed(lines, quoting=csv.QUOTE_NONE if quotes == "none" else csv.QUOTE_MINIMAL)


def _parsed(
    lines: Lines, *, delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL
) -> NumberedFields:
    """Rows as the `csv` module reads them, each with the number of its first line."""
    csv.field_size_limit(_FIELD_CHARACTERS)
    texts = (line for _, line in lines)
    reader = csv.reader(texts, delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]
    first = 1
    try:
        for fields in reader:
            if fields:
                yield first, fields
            first = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{lines.name}:{first}: not valid CSV: {error}; fix it") from error


def _unquoted(field: str) -> str:
    """A field without the quotation marks that a spreadsheet put around it."""
    if len(field) < 2 or not (field[0] == field[-1] == '"'):
        return field
    inner = field[1:-1]
    return field if '"' in inner.replace('""', "") else inner.replace('""', '"')


def _wrong_width(fields: Sequence[str], expected: str, place: str) -> UserError:
    # The usual reason, where quotation marks were left alone.
    torn = any(field.count('"') % 2 for field in fields)
    hint = "; if quotation marks hold tabs or line ends together, set {quotes=csv}"
    return OptionError(
        "quotes",
        None,
        "fix the line" + (hint if torn else ""),
        problem=f"{place}: {len(fields)} fields, but {expected}",
    )


def parse_object(line: str, place: str) -> dict[str, Any]:
    """A line of JSON that is an object.

    Raises:
        UserError: it is something else, or no JSON; names its place, "file:line".
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg}, column {error.colno}"
        raise UserError(f"{place}: not valid JSON: {reason}; fix or remove the line") from error
    if not isinstance(fields, dict):
        raise UserError(f"{place}: not a JSON object but {type(fields).__name__}; fix the line")
    return fields


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
