"""Records of a source: JSON lines, TSV and CSV tables, lines of text, prepared data sets."""

import contextlib
import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bert_jax.data.examples import Example, Examples
from bert_jax.data.readers.json_objects import check_characters, parse_object, value_of, values
from bert_jax.data.readers.line_formats import LABEL_TEXT, LINE_FORMATS
from bert_jax.data.readers.lines import Lines, may_wait, open_lines, uncompressed_name
from bert_jax.data.readers.rows import (
    Report,
    TableCounts,
    fitted,
    is_header,
    table_rows,
    wrong_width,
)
from bert_jax.data.tensorflow import PreparedDataset
from bert_jax.errors import OptionError, UserError, require_one_of

Input = TypeVar("Input")

FORMATS = ("jsonl", "tsv", "csv", "text", LABEL_TEXT)
QUOTES = ("auto", "none", "csv")
DATASET = "tfds:"
"""The prefix of a source that is a data set prepared by TensorFlow Datasets."""

_ENDINGS = {"jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl", "tsv": "tsv", "csv": "csv"}
# Text files may have any extension but these.
_NO_LINES = ("parquet", "arrow", "xlsx", "xls", "npy", "npz", "pkl", "zip", "tar")


class Keys(tuple[str, ...]):
    """The keys of an object; those with the value null count as missing.

    Attributes:
        nulls: the keys with the value null.
    """

    nulls: tuple[str, ...]

    def __new__(cls, fields: Mapping[str, Any]) -> "Keys":
        """The keys of fields."""
        keys = super().__new__(cls, (key for key, value in fields.items() if value is not None))
        keys.nulls = tuple(key for key, value in fields.items() if value is None)
        return keys


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A row of a table, or a JSON object.

    Attributes:
        fields: values by column or key; text in a table.
        location: "file:line", for errors.
        columns: names of the columns of a table; None: the record has its own keys.
    """

    fields: dict[str, Any]
    location: str
    columns: tuple[str, ...] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns, or the `Keys` of an object."""
        return Keys(self.fields) if self.columns is None else self.columns

    def id(self, column: str | None, number: int) -> str:
        """The id in a column; without it, or where it is empty, the number of the record."""
        id = None if column is None else self.fields.get(column)
        return str(number) if id is None or id == "" else str(id)


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """How a file is read; keys of the same names in section `data`.

    Attributes:
        FORMATS: the formats that the reader knows.
        format: "jsonl", JSON, see `json_objects`; "tsv" or "csv", a table; "text", one text per
            line; "label_text", per line a label, a space and a text, or a text with the labels of
            fastText, one or several. "": selected by the file extension.
        header: whether the first line of a table names its columns; otherwise they are "0", "1", ….
        quotes: meaning of quotation marks around a field of a table. "csv": they are removed, and
            separators and line ends between them belong to the field. "none": they are ordinary
            characters, as in GLUE. "auto": as "csv" in CSV; in TSV they are removed if a field
            begins and ends with one and all between them are doubled, and kept otherwise.
        data_dir: directory of prepared data sets, for "tfds:" sources; None: the default of
            TensorFlow Datasets.
    """

    FORMATS: ClassVar[tuple[str, ...]] = FORMATS

    format: str = ""
    header: bool = True
    quotes: str = "auto"
    data_dir: str | None = None

    def __post_init__(self) -> None:
        require_one_of("data.format", self.format, ("", *self.FORMATS))
        require_one_of("data.quotes", self.quotes, QUOTES)

    @property
    def nested(self) -> tuple[str, ...]:
        """The column options that name a key of a nested object, such as "doc.text".

        The value is copied to a key of this name, unless the record has one.
        """
        names = (name for option, name in vars(self).items() if option.endswith("_column"))
        return tuple(name for name in names if "." in str(name))


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """The records of an input, read once.

    Attributes:
        rows: records in their order, or why one is malformed.
        columns: names of the columns; None: each record has its own, as in JSON.
        location: location of these names, "file:line".
        broken: locations of the rows skipped so far for a wrong number of columns.
        fraction: returns the share of the input that has been read; None if it is unknown.
        counts: counts of what has been read.
    """

    rows: Iterator[Record | UserError]
    columns: tuple[str, ...] | None = None
    location: str = ""
    broken: Sequence[str] = ()
    fraction: Callable[[], float | None] = lambda: None
    counts: TableCounts = dataclasses.field(default_factory=lambda: TableCounts(""))

    def examples(self, parse: Callable[[Record, int], Example[Input]]) -> Examples[Input]:
        """The examples that a function makes of the records and their numbers, from 0."""

        def example(row: Record | UserError, number: int) -> Example[Any]:
            fields = {} if isinstance(row, UserError) else row.fields
            try:
                example = parse(record := _record(row), number)
                if example.read:
                    self.counts.note(record.keys, example.read)
                return example
            except UserError as error:
                return Example(None, None, str(number), fields=fields, record=fields, error=error)

        return Examples(map(example, self.rows, itertools.count()), self.fraction)

    def accepts(self, record: Record, example: Example[Any]) -> bool:
        """Counts the columns of a record that its example is made of; whether the record counts.

        An object of Prodigy does not if a person has rejected or ignored it.
        """
        answer = record.fields.get("answer") if record.columns is None else None
        is_answer = answer in ("accept", "reject", "ignore") and "answer" not in example.read
        self.counts.note(record.keys, (*example.read, *["answer"] * is_answer))
        if is_rejected := is_answer and answer != "accept":
            self.counts.rejected.append(record.location)
        return not is_rejected

    @property
    def records(self) -> Iterator[Record]:
        """The records; iteration raises the error of a malformed one."""
        return map(_record, self.rows)


def _record(row: Record | UserError) -> Record:
    if isinstance(row, UserError):
        raise row
    return row


def is_dataset(source: str | Path) -> bool:
    """Whether a source is "tfds:…", a prepared data set."""
    return str(source).startswith(DATASET)


@contextlib.contextmanager
def open_records(
    source: str | Path,
    options: FileOptions = FileOptions(),
    report: Report = TableCounts.say,
    *,
    default: str = "",
    headless: tuple[str, ...] = (),
    skip_broken: bool = False,
) -> Iterator[Table]:
    """Opens a file: UTF-8 with or without byte order mark, or UTF-16.

    Lines end in LF, CRLF or CR. Blank lines are skipped, except in "text", where they are empty
    texts. The separator of "csv" is the one that a first line `sep=;` names, else the first of
    comma, semicolon and tab that the first line has outside of quotation marks.

    The columns of a data set are its features, see `PreparedDataset.records`; it is not downloaded.

    Args:
        source: a file, also a compressed one; "-" for stdin; or
            "tfds:NAME[/CONFIG][:VERSION][:SPLIT]", by default the newest version, and "train".
        options: options of the reader.
        report: see `Report`.
        default: the format if neither the options nor the file extension name one; "": an error.
        headless: names of the columns of a table with an optional header line: the first line is a
            header if one of its fields is one of these names. Overrides `options.header`.
        skip_broken: whether rows with a wrong number of columns are skipped and counted; otherwise
            they are errors.

    Raises:
        UserError: the source cannot be opened, or the extension is unknown; or, during iteration, a
            record is malformed.
    """
    with contextlib.ExitStack() as opened:
        if is_dataset(source):
            table = _dataset(str(source), options.data_dir)
        else:
            form = options.format or format_of(source) or default
            lines = opened.enter_context(open_lines(source))
            if not form:
                raise OptionError(
                    "data.format",
                    None,
                    f"set {{data.format}} to one of {', '.join(FORMATS)}",
                    problem=f"{source}: its ending names no format",
                )
            table = _table(lines, form, options, headless, skip_broken=skip_broken)

        def rows() -> Iterator[Record | UserError]:
            yield from table.rows
            if not table.counts.is_plain:
                report(table.counts)

        yield dataclasses.replace(table, rows=rows())


def first_row(source: str | Path, options: FileOptions) -> tuple[str, ...]:
    """The fields of the first line of a TSV or CSV file; () of others, and of one to read once."""
    is_table = not is_dataset(source) and (options.format or format_of(source)) in ("tsv", "csv")
    if not is_table or may_wait(source):
        return ()
    options = dataclasses.replace(options, header=False)
    with open_records(source, options) as table:
        record = next(table.records, None)
    return tuple(record.fields.values()) if record else ()


def format_of(source: str | Path) -> str:
    """The format for the extension of a file's name, "" if it is unknown.

    Raises:
        OptionError: files with this extension are not text.
    """
    last = Path(uncompressed_name(source)).suffix.removeprefix(".")
    if last in _NO_LINES:
        raise OptionError(
            "data.format",
            None,
            "convert it, or set {data.format}",
            problem=f"{source}: a file of this ending is none of {', '.join(FORMATS)}",
        )
    return _ENDINGS.get(last, "")


def _table(
    lines: Lines,
    form: str,
    options: FileOptions,
    headless: tuple[str, ...],
    *,
    skip_broken: bool,
) -> Table:
    """The table of a file, see `open_records`."""
    counts = TableCounts(lines.name)
    if form == "jsonl":
        return Table(_objects(lines, options.nested), fraction=lines.fraction, counts=counts)
    if form in LINE_FORMATS:
        columns, read = LINE_FORMATS[form]
        parsed = (
            Record(dict(zip(columns, fields, strict=True)), f"{lines.name}:{number}", columns)
            for number, fields in read(lines)
        )
        return Table(parsed, columns, f"{lines.name}:1", (), lines.fraction, counts)
    rows = table_rows(lines, form, options.quotes, counts)
    number, first = next(rows, (1, []))
    location = f"{lines.name}:{number}"
    header = bool({*first} & {*headless}) if headless else options.header
    columns = tuple(first) if header else headless or tuple(map(str, range(len(first))))
    named = max((at for at, name in enumerate(columns, 1) if name), default=0)
    if columns.count("") > 1:  # of a spreadsheet
        columns = tuple(name or str(at) for at, name in enumerate(columns))
    if header:
        counts.lines = 0
    elif first:
        rows = itertools.chain([(number, first)], rows)
    if len(set(columns)) < len(columns):
        twice = next(name for name, count in Counter(columns).items() if count > 1)
        raise UserError(f"{location}: two columns have the name {twice!r}; rename one")
    broken: list[str] = []

    def records() -> Iterator[Record | UserError]:
        for number, fields in rows:
            row_location = f"{lines.name}:{number}"
            if header and is_header(fields, first):
                counts.headers.append(number)
                continue
            counts.rows += 1
            fields = fitted(fields, len(columns), named)
            if len(fields) == len(columns):
                yield Record(dict(zip(columns, fields, strict=True)), row_location, columns)
            elif skip_broken:
                broken.append(row_location)
            else:
                origin = "the header has" if header else "the first row has"
                yield wrong_width(fields, f"{origin} {len(columns)}", row_location)

    return Table(records(), columns, location, broken, lines.fraction, counts)


def _dataset(source: str, data_dir: str | None) -> Table:
    dataset = PreparedDataset(repr(source), source.removeprefix(DATASET), data_dir)
    columns = tuple(sorted(dataset.features))
    count, done = dataset.count, 0

    def records() -> Iterator[Record]:
        nonlocal done
        for fields, location in dataset.records(source):
            done += 1
            yield Record(fields, location, columns)

    def fraction() -> float | None:
        return done / count if count else None

    return Table(records(), columns, source, fraction=fraction, counts=TableCounts(source))


def _objects(lines: Lines, nested: Sequence[str]) -> Iterator[Record | UserError]:
    for number, text in values(lines.name, lines):
        try:
            yield _object(text, f"{lines.name}:{number}", nested)
        except UserError as error:
            yield error


def _object(text: str, location: str, nested: Sequence[str]) -> Record:
    fields = parse_object(text, location)
    if "\\u" in text:
        check_characters(fields, location)
    for name in nested:
        if (value := value_of(fields, name)) is not None:
            fields[name] = value
    return Record(fields, location)


def string_field(fields: Mapping[str, Any], key: str, location: str) -> str:
    """The string in a field of a record; `location` names the record in errors.

    Raises:
        UserError: the field is missing or not a string.
    """
    text = fields.get(key)
    if key in fields and text is None:
        raise null_error(key, location)
    if not isinstance(text, str):
        kind = type(text).__name__ if key in fields else "missing"
        raise UserError(f"{location}: {key!r} is not a string but {kind}; fix the row")
    return text


def null_error(key: str, location: str) -> UserError:
    """The error of a key that has the value null."""
    return UserError(f"{location}: {key!r} is null; give it a value, or remove the row")
