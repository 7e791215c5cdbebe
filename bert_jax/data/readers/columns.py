"""Columns of text, pair, label and id, configured or by their usual names; and labels."""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bert_jax.data.examples import Label
from bert_jax.data.readers.tables import Record
from bert_jax.errors import OptionError, UserError

# Searched in this order, without regard to case; a pair before a single text.
USUAL_PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
)
USUAL_TEXTS = ("text", "sentence", "review", "comment", "content", "tweet", "question")
USUAL_CLASSES = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "sentiment",
    "emotion",
    "intent",
    "target",
)
USUAL_SCORES = ("score", "similarity", "rating", "label", "target")
USUAL_IDS = ("id", "idx", "index", "guid")


@dataclasses.dataclass(frozen=True)
class TextColumns:
    """Columns by name, or by number from 0; "": not configured.

    Attributes:
        text: column of the text.
        pair: column of the second text.
        label: column of the label.
        id: column of the id.
    """

    text: str = ""
    pair: str = ""
    label: str = ""
    id: str = ""


@dataclasses.dataclass(frozen=True)
class ResolvedColumns:
    """The names in a file of the columns of `TextColumns`, or None where there is none.

    Attributes:
        text: column of the text.
        pair: column of the second text, or None.
        label: column of the label, or None.
        id: column of the id, or None.
    """

    text: str
    pair: str | None
    label: str | None
    id: str | None


def find_columns(
    named: TextColumns,
    present: Sequence[str],
    place: str,
    *,
    regression: bool = False,
    needs_labels: bool = False,
) -> ResolvedColumns:
    """Finds the columns among those of a file.

    A text column that is not configured is found by `USUAL_PAIRS` and `USUAL_TEXTS`; if it is
    configured and the pair is not, there is no pair. A label column that is not configured is found
    by `USUAL_CLASSES`, for a regression first by `USUAL_SCORES`, an id by `USUAL_IDS`.

    Args:
        named: the configured columns.
        present: column names of the file, or keys of its first object.
        place: place of these names, "file:line".
        regression: whether the label is a number.
        needs_labels: whether a missing label column is an error; otherwise it becomes None.

    Raises:
        OptionError: a configured text, pair or id is missing, no text is found, or a required label
            is missing; the message names the columns and the option to set.
    """
    if named.pair and not named.text:
        raise OptionError("pair_column", named.pair, "set {text_column}, too")
    if named.text:
        text: str | None = _configured("text_column", named.text, present, place)
        pair = _configured("pair_column", named.pair, present, place) if named.pair else None
    else:
        text, pair = _usual_texts(present)
    if text is None:
        raise OptionError(
            "text_column",
            None,
            "set {text_column} (and {pair_column}, {label_column})" + _header_hint(present),
            problem=f"{place}: no column has a usual name of a text, only {_names(present)}",
        )
    usual = (*USUAL_SCORES, *USUAL_CLASSES) if regression else (*USUAL_CLASSES, *USUAL_SCORES)
    label = _lookup(named.label, present) if named.label else usual_column(usual, present)
    if label is None and needs_labels:
        raise OptionError(
            "label_column",
            None,
            "set {label_column}" + _header_hint(present),
            problem=f"{place}: there is no column {named.label or 'label'!r} among "
            f"{_names(present)}, but labels are required",
        )
    if named.id:
        return ResolvedColumns(
            text, pair, label, _configured("id_column", named.id, present, place)
        )
    return ResolvedColumns(text, pair, label, usual_column(USUAL_IDS, present))


def usual_column(names: Sequence[str], present: Sequence[str]) -> str | None:
    """The first of several names that is a column, without regard to case; None: no column is."""
    by_lower = {column.strip().lower(): column for column in reversed(present)}
    return next((by_lower[name] for name in names if name in by_lower), None)


def record_id(fields: Mapping[str, Any], column: str | None, number: int, place: str) -> str:
    """The id of a record.

    Args:
        fields: the fields of the record.
        column: name of the column of ids; if it is None, missing or empty, the number is the id.
        number: index of the record, from 0.
        place: "file:line", for errors.

    Raises:
        UserError: the id is a list or an object.
    """
    id = None if column is None else fields.get(column)
    if id is None or id == "":
        return str(number)
    if not isinstance(id, str | int | float):
        raise UserError(f"{place}: the id ({column!r}) is {id!r:.40}; give the row one")
    return str(id)


class Labels:
    """Reads the label of each record; the first record decides whether there are any."""

    def __init__(
        self,
        column: str | None,
        *,
        regression: bool = False,
        separator: str = "",
        classes: Collection[str] = (),
        needed: bool = False,
        header_label: str = "",
    ) -> None:
        """Starts a file; the first record is not read yet.

        Args:
            column: column of the label; None: there are no labels.
            regression: whether a label is a number.
            separator: separator of several classes in a row; "": a row has one.
            classes: possible labels; (): any.
            needed: whether missing labels are an error.
            header_label: field of the header line in this column, if the column is configured by
                its number. If it equals a label of the rows, the line is not a header.
        """
        self._column = column
        self._regression = regression
        self._separator = separator
        self._classes = classes
        self._needed = needed
        self._header_label = header_label
        self._kind: str | None = None

    def read(self, record: Record) -> Label | None:
        """The label of a record; None if its file has no labels.

        Raises:
            UserError: a label is empty, of another kind than the one before, not a number, or not
                one of the classes.
        """
        if self._column is None:
            return None
        label = self._parse(record.fields.get(self._column), record.place)
        kind = "no label" if label is None else _KINDS[type(label)]
        if label is None and (self._needed or self._kind not in (None, kind)):
            raise UserError(
                f"{record.place}: the label ({self._column!r}) is empty; give the row one, or "
                "remove it"
            )
        if self._kind not in (None, kind):
            raise UserError(
                f"{record.place}: {self._column!r} is {kind}, but {self._kind} in the rows before; "
                "give every row the same"
            )
        self._kind = kind
        return label

    def _parse(self, value: Any, place: str) -> Label | None:
        if value is None or (isinstance(value, str) and not (value.strip() or self._separator)):
            return None
        if self._regression:
            return self._number(value, place)
        if isinstance(value, list):
            return tuple(dict.fromkeys(self._class(part, place) for part in value))
        if self._separator and isinstance(value, str):
            parts = [part.strip() for part in value.split(self._separator)]
            return tuple(dict.fromkeys(self._class(part, place) for part in parts if part))
        return self._class(value, place)

    def _number(self, value: Any, place: str) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):  # overflow: JSON has numbers of any length
            number = math.nan
        if not math.isfinite(number):
            raise UserError(
                f"{place}: {self._column!r} is {value!r:.40}, which is not a number; a regression "
                "needs one"
            )
        self._check_header(_is_number(self._header_label), place)
        return number

    def _class(self, value: Any, place: str) -> str:
        if isinstance(value, bool):
            label = str(value).lower()  # as JSON spells it
        elif isinstance(value, str | int | float):
            label = str(value).strip()
        else:
            raise UserError(
                f"{place}: {self._column!r} is not a label but {type(value).__name__}; give a "
                "string or a number"
            )
        if label.casefold() in MISSING:
            raise UserError(
                f"{place}: the label ({self._column!r}) is {label!r}, which stands for a missing "
                "one; give the row a label, or remove it"
            )
        if self._classes and label not in self._classes:
            known = ", ".join(self._classes)
            raise UserError(f"{place}: the label {label!r:.40} is none of {known}; fix the line")
        self._check_header(label == self._header_label, place)
        return label

    def _check_header(self, is_row: bool, place: str) -> None:
        if is_row and self._header_label:
            raise OptionError(
                "header",
                True,
                "if it is a row, set {header=False}",
                problem=f"{place}: the first line of the file is taken for its header, but has the "
                f"label {self._header_label!r:.40}, like a row",
            )


# How programs write a missing value; "None" and "NA" may be classes.
MISSING = frozenset({"", "nan", "<na>", "#n/a", "nat"})
_KINDS = {str: "one label", float: "a number", tuple: "a list of labels"}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lookup(name: str, present: Sequence[str]) -> str | None:
    """A column by its name; or, if no column has this name, by its number."""
    if name in present:
        return name
    if name.isdecimal() and int(name) < len(present):
        return present[int(name)]
    return None


def _configured(option: str, name: str, present: Sequence[str], place: str) -> str:
    column = _lookup(name, present)
    if column is None:
        raise OptionError(
            option,
            name,
            f"set {{{option}}} to one of these, or to its number from 0",
            problem=f"{place}: there is no column {name!r}, only {_names(present)}",
        )
    return column


def _usual_texts(present: Sequence[str]) -> tuple[str | None, str | None]:
    for first, second in USUAL_PAIRS:
        text, pair = usual_column((first,), present), usual_column((second,), present)
        if text is not None and pair is not None:
            return text, pair
    return usual_column(USUAL_TEXTS, present), None


def _names(present: Sequence[str]) -> str:
    short = (name if len(name) <= 40 else name[:39] + "…" for name in present)
    return ", ".join(map(repr, short)) or "nothing"


def _header_hint(present: Sequence[str]) -> str:
    if list(present) == [str(number) for number in range(len(present))]:
        return " to numbers from 0, as the file has no header"
    return "; if this line is not a header but a row, set {header=False} and numbers from 0"
