"""The labels of texts, in every form in which files have them.

One class: a text or a number. Several classes: a list of them in a cell or in JSON, texts between
separators, a vector of 0 and 1, or a column of 0 and 1 for each class. A number to regress on.

Lists in cells are as Python, JSON and NumPy write them, and are never evaluated:

    ['joy', 'fear']   ('joy',)   {'joy'}   ["joy"]   [True, False]   [np.int64(0), np.True_]
    ['joy' 'fear']    [0 1 0]    [0. 1. 0.]   array([0, 1])   tensor([0., 1.])
"""

import ast
import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from bert_jax.data.examples import Example, Label, LabelVector, Text
from bert_jax.data.readers.columns import TextColumns, TextOptions
from bert_jax.data.readers.line_formats import LABEL_TEXT
from bert_jax.data.readers.rows import is_number
from bert_jax.data.readers.tables import Record
from bert_jax.errors import FLOAT32_MAX, OptionError, UserError

# How programs write a missing value; "None" and "NA" may be classes.
MISSING = frozenset({"", "nan", "<na>", "#n/a", "nat"})

_BITS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}

# A list is enclosed in brackets; or begins with a bracket and a quotation mark; or has parentheses
# or braces around a comma, or around nothing but numbers: "(other)" is a class.
_LIST = re.compile(
    r"\[.*\]|[\[({]\s*['\"].*|[({](?:[^,]*,.*|[\s\d.]*)[)}]",
    re.DOTALL,
)
_CALL = re.compile(
    r"(?:np\.)?(?:array|tensor|(?:frozen)?set)\((?:(?P<list>[\[({].*[\])}])[^\])}]*)?\)",
    re.DOTALL,
)
_PART = re.compile(
    r"\s*(?:np\.\w+\()?"
    r"(?:(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<bare>[^\s,'\"()\[\]{}]+))"
    r"\)?(?P<gap>\s*,|\s+|$)\s*",
    re.DOTALL,
)
_BIT = r"(?:[01](?:\.0*)?|true|false)"
_VECTOR = re.compile(rf"{_BIT}(?:(?:\s*[,;|]\s*|\s+){_BIT})+", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
# A quoted part in which no backslash is before a character that has no meaning behind it.
_ESCAPED = re.compile(r"""(['"])(?:[^\\]|\\(?:[\\'"abfnrtv]|x[\da-fA-F]{2}|u[\da-fA-F]{4}))*\1""")
_NUMBERS = re.compile(r"\d+(\s*[,;|]\s*\d+)+")


def names_by_number(names: Sequence[str]) -> dict[str, str]:
    """The names of classes by their numbers, from "0"; {} if a name is a number itself.

    Then "1" is the class of this name, and never the second class.
    """
    if any(map(is_number, names)):
        return {}
    return {str(number): name for number, name in enumerate(names)}


@dataclasses.dataclass
class Labels:
    """Reads the labels of a file: those of each row with `read`, then of all with `named`.

    Attributes:
        options: the separator of several classes in a cell, and the names of classes.
        columns: the column of the label, or a column of 0 and 1 for each class.
        regression: whether a label is a number.
        one_class: whether a label is one class: alone, alone in a list, or a cell that looks like a
            list and is none.
        needed: whether missing labels are an error.
    """

    options: TextOptions
    columns: TextColumns
    regression: bool = False
    one_class: bool = False
    needed: bool = False

    def __post_init__(self) -> None:
        options, label = self.options, self.columns.label
        self._columns = self.columns.classes or ((label,) if label else ())
        self._separator, self._names = options.label_separator, options.names
        self._by_number = names_by_number(self._names)
        # If a row has a label that is also in the header, the line is not a header.
        is_by_number = options.header and options.label_column not in ("", label)
        self._header = (label or "") if is_by_number else ""
        self._quoted = ", ".join(map(repr, self._columns))

    def read(self, record: Record) -> Label | None:
        """The label of a row as in the file; None if it has none.

        Raises:
            UserError: a label is not a number, or not one of the classes; or it looks like a list
                and is none.
        """
        if not self._columns:
            return None
        if self.columns.classes:
            return self._from_columns(record)
        return self._parse(record.fields.get(self._columns[0]), record.location)

    def named(self, examples: Sequence[Example[Text]]) -> Iterator[Example[Text]]:
        """All examples of the file, with names of classes in place of the numbers in their lists.

        If a line of fastText has several labels, as it may, all labels of the file are lists.

        Lists of 0 and 1 are vectors if one of them has a number twice, or if all have the same
        length, which is at least 2 and the number of names; otherwise they are numbers of classes.

        Raises:
            UserError: a label is missing, or of another kind than the first; a vector has another
                length than the first, or not only 0 and 1; or a number in a list is not whole.
        """
        if self.options.format == LABEL_TEXT and not self.one_class:
            examples = _all_lists(examples)
        self._check_kinds(examples)
        if self.columns.classes or not (examples and isinstance(examples[0].label, tuple)):
            yield from examples
            return
        lists = [cast(tuple[str, ...], example.label) for example in examples]
        are_vectors, width = self._are_vectors(lists), len(lists[0])
        names = self._names or tuple(f"LABEL_{number}" for number in range(width))
        for example, parts in zip(examples, lists, strict=True):
            label: Label
            if are_vectors:
                label = _vector(parts, width, names, example.location)
            else:
                label = tuple(dict.fromkeys(self._name(part, example.location) for part in parts))
            yield example.labelled(label)

    def _check_kinds(self, examples: Sequence[Example[Text]]) -> None:
        """Checks that all labels are of the same kind, or that all are missing."""
        first = _kind(examples[0].label) if examples else ""
        for label, location in ((example.label, example.location) for example in examples):
            kind = _kind(label)
            if label is None and (self.needed or kind != first):
                raise UserError(
                    f"{location}: the label ({self._quoted}) is empty; give the row one, or "
                    "remove it"
                )
            if kind != first:
                hint = ", or set {data.label_separator} if a row may have several"
                raise OptionError(
                    "data.label_separator",
                    self._separator,
                    "give every row the same" + (hint if _kind(()) in (kind, first) else ""),
                    f"{location}: {self._quoted} is {kind}, but {first} in the rows before",
                )

    def _are_vectors(self, lists: Sequence[tuple[str, ...]]) -> bool:
        bit_lists = [parts for parts in lists if _BITS.keys() >= set(parts)]
        if any(len(set(parts)) < len(parts) for parts in bit_lists):
            return True
        lengths = set(map(len, lists))
        expected = len(self._names) or max(lengths)
        return len(bit_lists) == len(lists) and lengths == {expected} and expected > 1

    def _from_columns(self, record: Record) -> LabelVector | None:
        """The classes whose columns are 1; None if all are empty."""
        values = [record.fields.get(column) for column in self._columns]
        texts = ["" if value is None else str(value).strip().lower() for value in values]
        if not any(texts):
            return None
        for column, text in zip(self._columns, texts, strict=True):
            if text not in _BITS:
                raise OptionError(
                    "data.label_columns",
                    self._columns,
                    "fix the row, or choose the columns with {data.label_columns}",
                    problem=f"{record.location}: {column!r} is {text!r:.40}, but the column of a "
                    "label is 0 or 1",
                )
        names = self._names or self._columns
        return _vector(texts, len(self._columns), names, record.location)

    def _parse(self, value: Any, location: str) -> Label | None:
        if value is None or (isinstance(value, str) and not (value.strip() or self._separator)):
            return None
        if self.regression:
            return self._number(value, location)
        parts = self._parts(value, location)
        if parts is not None and not (self.one_class and len(parts) == 1):
            return tuple(self._class(part, location) for part in parts)
        label = self._class(parts[0] if parts else value, location)
        return self._by_number.get(label.removesuffix(".0"), label)

    def _parts(self, value: Any, location: str) -> Sequence[Any] | None:
        """The labels of a list in JSON or in a cell; None: the value is one label."""
        if isinstance(value, list):
            return value
        if not isinstance(value, str):
            return None
        try:
            parts = parse_list(value)
            if self.one_class:
                return parts
            if parts is None and self._separator:
                return [part for part in map(str.strip, value.split(self._separator)) if part]
            return parse_vector(value) if parts is None else parts
        except ValueError as error:
            if self.one_class:
                return None
            raise OptionError(
                "data.problem_type",
                None,
                "fix it, or set {data.label_separator}; or, if it is one class, set "
                "{data.problem_type=single_label_classification}",
                problem=f"{location}: {self._quoted} is {value!r:.40}, which looks like a list, "
                f"but {error}",
            ) from error

    def _number(self, value: Any, location: str) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(self._with_point(value))
        except (TypeError, ValueError, OverflowError):  # overflow: JSON has numbers of any length
            number = math.nan
        if not abs(number) <= FLOAT32_MAX:
            problem = (
                f"{location}: {self._quoted} is {value!r:.40}, which is not a number, or one that "
                "is not finite in float32"
            )
            if isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value.strip()):
                rule = "if its comma is that of a decimal number, set {data.decimal_comma=true}"
                raise OptionError("data.decimal_comma", False, rule, problem)
            raise UserError(f"{problem}; a regression needs one")
        self._check_header(is_number(self._header), location)
        return number

    def _with_point(self, value: Any) -> Any:
        """A number with a decimal comma with a point in its place, if the option says so."""
        is_with_comma = self.options.decimal_comma and isinstance(value, str)
        return value.replace(",", ".") if is_with_comma else value

    def _class(self, value: Any, location: str) -> str:
        if isinstance(value, bool):
            label = str(value).lower()  # as JSON spells it
        elif isinstance(value, str | int | float):
            label = str(value).strip()
        else:
            raise UserError(
                f"{location}: {self._quoted} is not a label but {type(value).__name__}; give a "
                "string or a number"
            )
        if label.casefold() in MISSING:
            raise UserError(
                f"{location}: the label ({self._quoted}) is {label!r}, which means a missing "
                "value; give the row a label, or remove it"
            )
        self._check_header(label == self._header, location)
        return label

    def _name(self, label: str, location: str) -> str:
        """The name of a class that a list may give by its number."""
        if is_number(label) and float(label) % 1:
            raise UserError(
                f"{location}: {self._quoted} has {label} in a list, which is neither the number of "
                "a class nor 0 or 1; fix the row"
            )
        return self._by_number.get(label.removesuffix(".0"), label)

    def _check_header(self, is_row: bool, location: str) -> None:
        if is_row and self._header:
            raise OptionError(
                "data.header",
                True,
                "if it is a row, set {data.header=false}",
                problem=f"{location}: the first line of the file is taken for its header, but has "
                f"the label {self._header!r:.40}, like a row",
            )


def _all_lists(examples: Sequence[Example[Text]]) -> Sequence[Example[Text]]:
    """The examples with a list in place of each label alone, if one has a list."""
    if not any(isinstance(example.label, tuple) for example in examples):
        return examples
    return [
        example.labelled((example.label,)) if isinstance(example.label, str) else example
        for example in examples
    ]


def _vector(parts: Sequence[str], width: int, names: tuple[str, ...], location: str) -> LabelVector:
    """The classes of a vector of keys of `_BITS`; `width` is that of the first one of the file."""
    strange = next((part for part in parts if part not in _BITS), None)
    if strange is not None:
        problem = f"{location}: {strange!r:.40} in a list is neither 0 nor 1, as in the other rows"
    elif len(parts) != width:
        problem = f"{location}: a vector of {len(parts)} numbers, but the first row has {width}"
    elif len(names) != width:
        problem = f"{location}: a vector of {width} numbers, but {len(names)} labels are named"
    else:
        return LabelVector(names, [_BITS[part] for part in parts])
    raise OptionError(
        "data.labels",
        names,
        "fix the row, or name the same number of labels with {data.labels}",
        problem=problem,
    )


def _kind(label: Label | None) -> str:
    match label:
        case None:
            return "no label"
        case str():
            return "one label"
        case float():
            return "a number"
    return "a list of labels"


def parse_list(text: str) -> tuple[str, ...] | None:
    """The parts of a cell that is a list; None if it does not look like one.

    Quoted parts are the texts between the quotation marks; numbers are as written, "1." as "1.0";
    booleans are "true" and "false".

    Raises:
        ValueError: it looks like a list but is none; the message says why.
    """
    text = text.strip()
    if call := _CALL.fullmatch(text):
        text = call["list"] or "[]"
    if not _LIST.fullmatch(text):
        return None
    if text[0] + text[-1] not in ("[]", "()", "{}"):
        raise ValueError("it does not end like one")
    return tuple(_parts_of_list(text[1:-1].strip()))


def parse_vector(text: str) -> tuple[str, ...] | None:
    """The numbers of a cell such as "0 1 0", "0,1,0" or "True|False"; None if it is none.

    Raises:
        ValueError: it has several numbers as "2,10", which may be one class.
    """
    text = text.strip()
    if _VECTOR.fullmatch(text):
        return tuple(re.split(r"[\s,;|]+", text.lower()))
    if _NUMBERS.fullmatch(text):
        raise ValueError("it has no brackets")
    return None


def _parts_of_list(inside: str) -> Iterator[str]:
    position, commas = 0, set()
    while position < len(inside):
        part = _PART.match(inside, position)
        if part is None:
            raise ValueError(f"{inside[position:]!r:.20} is neither quoted nor a number")
        position = part.end()
        if position < len(inside):
            commas.add("," in part["gap"])
        yield _quoted_part(part["quoted"]) if part["quoted"] else _bare_part(part["bare"])
    if len(commas) > 1:
        raise ValueError("only some of its parts have commas between them")


def _quoted_part(part: str) -> str:
    if "\\" not in part:
        return part[1:-1]
    try:
        part = part.replace(r"\/", "/")  # PHP's JSON escapes it
        if _ESCAPED.fullmatch(part):  # a cell may have very many; the parser takes 20 µs for each
            text = part[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")
        else:
            text = str(ast.literal_eval(part))
        return text.encode("utf-16", "surrogatepass").decode("utf-16")  # JSON has pairs
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{part:.20} has an invalid escape sequence") from error


def _bare_part(part: str) -> str:
    word = part.removeprefix("np.").removesuffix("_").lower()
    if word in ("true", "false") or re.fullmatch(r"[+-]?\d+", word):
        return word
    try:
        return str(float(word))
    except ValueError as error:
        raise ValueError(f"{part!r:.20} is neither quoted nor a number") from error
