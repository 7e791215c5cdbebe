"""The labels of texts, in every form in which files have them.

One class: a text or a number. Several classes: a list of them in a cell or in JSON, texts between
separators, a vector of 0 and 1, or a column of 0 and 1 for each class. A number to regress on.
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

from bert_jax.data.examples import Label, LabelVector, TextExample
from bert_jax.data.readers.label_cells import parse_list, parse_vector
from bert_jax.data.readers.rows import is_number
from bert_jax.data.readers.tables import Record
from bert_jax.errors import LARGEST, OptionError, UserError

# How programs write a missing value; "None" and "NA" may be classes.
MISSING = frozenset({"", "nan", "<na>", "#n/a", "nat"})

_BITS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


@dataclasses.dataclass(frozen=True)
class LabelForm:
    """What is known of the labels of a file before it is read.

    Attributes:
        regression: whether a label is a number.
        one_class: whether a cell is one class, also if it looks like a list.
        separator: separator of several classes in a cell; "": there is none.
        names: names of the classes, in the order of their numbers; (): they have no names.
        classes: the classes as the file writes them; (): any.
        needed: whether missing labels are an error.
    """

    regression: bool = False
    one_class: bool = False
    separator: str = ""
    names: tuple[str, ...] = ()
    classes: Collection[str] = ()
    needed: bool = False


def names_by_number(names: Sequence[str]) -> dict[str, str]:
    """The names of classes by their numbers, from "0"; {} if a name is a number itself.

    Then "1" is the class of this name, and never the one in the second place.
    """
    if any(map(is_number, names)):
        return {}
    return {str(number): name for number, name in enumerate(names)}


class Labels:
    """Reads the labels of a file; the first row decides whether there are any, and their kind."""

    def __init__(
        self,
        column: str | None,
        form: LabelForm = LabelForm(),
        *,
        label_columns: Sequence[str] = (),
        header_label: str = "",
    ) -> None:
        """Starts a file; the first row is not read yet.

        Args:
            column: column of the label; None: there are no labels, or they have several columns.
            form: what is known of the labels.
            label_columns: a column of 0 and 1 for each class.
            header_label: field of the header line in this column, if the column is configured by
                its number. If it equals a label of the rows, the line is not a header.
        """
        self._column = column
        self._form = form
        self._label_columns = tuple(label_columns)
        self._header_label = header_label
        self._by_number = names_by_number(form.names)
        self._kind: str | None = None
        self._what = repr(column) if column else ", ".join(label_columns)

    def read(self, record: Record) -> Label | None:
        """The label of a row; None if its file has no labels. A list is not final, see `named`.

        Raises:
            UserError: a label is empty, of another kind than the one before, not a number, or not
                one of the classes; or it looks like a list and is none.
        """
        if self._label_columns:
            label: Label | None = self._of_columns(record)
        elif self._column is None:
            return None
        else:
            label = self._parse(record.fields.get(self._column), record.place)
        kind = _kind(label)
        if label is None and (self._form.needed or self._kind not in (None, kind)):
            raise UserError(
                f"{record.place}: the label ({self._what}) is empty; give the row one, or remove it"
            )
        if self._kind not in (None, kind):
            raise UserError(
                f"{record.place}: {self._what} is {kind}, but {self._kind} in the rows before; "
                "give every row the same"
            )
        self._kind = kind
        return label

    def named(self, examples: Sequence[TextExample]) -> Iterator[TextExample]:
        """All examples of the file, with names of classes in place of the numbers in their lists.

        Lists of 0 and 1 are vectors if one of them has a number twice, or if all have the same
        length, which is at least 2 and the number of names; otherwise they are numbers of classes.

        Raises:
            UserError: a vector has another length than the first, or not only 0 and 1; or a number
                in a list is not whole.
        """
        if self._label_columns or self._kind != _kind(()):
            yield from examples
            return
        lists = [cast(tuple[str, ...], example.label) for example in examples]
        are_vectors, width = self._are_vectors(lists), len(lists[0])
        names = self._form.names or tuple(f"LABEL_{number}" for number in range(width))
        for example, parts in zip(examples, lists, strict=True):
            label: Label
            if are_vectors:
                label = _vector(parts, width, names, example.place)
            else:
                label = tuple(dict.fromkeys(self._name(part, example.place) for part in parts))
            yield dataclasses.replace(example, label=label)

    def _are_vectors(self, lists: Sequence[tuple[str, ...]]) -> bool:
        of_bits = [parts for parts in lists if _BITS.keys() >= set(parts)]
        if any(len(set(parts)) < len(parts) for parts in of_bits):
            return True
        lengths = set(map(len, lists))
        expected = len(self._form.names) or max(lengths)
        return len(of_bits) == len(lists) and lengths == {expected} and expected > 1

    def _of_columns(self, record: Record) -> LabelVector | None:
        """The classes whose columns are 1; None if all are empty."""
        values = [record.fields.get(column) for column in self._label_columns]
        texts = ["" if value is None else str(value).strip().lower() for value in values]
        if not any(texts):
            return None
        for column, text in zip(self._label_columns, texts, strict=True):
            if text not in _BITS:
                raise OptionError(
                    "label_columns",
                    self._label_columns,
                    "fix the row, or choose the columns with {label_columns}",
                    problem=f"{record.place}: {column!r} is {text!r:.40}, but the column of a "
                    "label is 0 or 1",
                )
        names = self._form.names or self._label_columns
        return _vector(texts, len(self._label_columns), names, record.place)

    def _parse(self, value: Any, place: str) -> Label | None:
        if value is None or (
            isinstance(value, str) and not (value.strip() or self._form.separator)
        ):
            return None
        if self._form.regression:
            return self._number(value, place)
        parts = self._parts(value, place)
        if parts is not None:
            return tuple(self._class(part, place) for part in parts)
        label = self._class(value, place)
        return self._by_number.get(label.removesuffix(".0"), label)

    def _parts(self, value: Any, place: str) -> Sequence[Any] | None:
        """The labels of a list, or of a cell that is one; None: the value is one label."""
        if isinstance(value, list) and self._form.one_class:
            raise OptionError(
                "problem_type",
                None,
                "leave {problem_type} out",
                problem=f"{place}: {self._what} is a list, but a text has one class",
            )
        if isinstance(value, list):
            return value
        if not isinstance(value, str) or self._form.one_class:
            return None
        try:
            parts = parse_list(value)
        except ValueError as error:
            raise OptionError(
                "problem_type",
                None,
                "fix it; or, if it is one class, set {problem_type=single_label_classification}",
                problem=f"{place}: {self._what} is {value!r:.40}, which looks like a list, but "
                f"{error}",
            ) from error
        if parts is None and self._form.separator:
            return [part for part in map(str.strip, value.split(self._form.separator)) if part]
        return parse_vector(value) if parts is None else parts

    def _number(self, value: Any, place: str) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):  # overflow: JSON has numbers of any length
            number = math.nan
        if not abs(number) <= LARGEST:
            raise UserError(
                f"{place}: {self._what} is {value!r:.40}, which is not a number, or one that is "
                "not finite in float32; a regression needs one"
            )
        self._check_header(is_number(self._header_label), place)
        return number

    def _class(self, value: Any, place: str) -> str:
        if isinstance(value, bool):
            label = str(value).lower()  # as JSON spells it
        elif isinstance(value, str | int | float):
            label = str(value).strip()
        else:
            raise UserError(
                f"{place}: {self._what} is not a label but {type(value).__name__}; give a "
                "string or a number"
            )
        if label.casefold() in MISSING:
            raise UserError(
                f"{place}: the label ({self._what}) is {label!r}, which stands for a missing "
                "one; give the row a label, or remove it"
            )
        if self._form.classes and label not in self._form.classes:
            known = ", ".join(self._form.classes)
            raise UserError(f"{place}: the label {label!r:.40} is none of {known}; fix the line")
        self._check_header(label == self._header_label, place)
        return label

    def _name(self, label: str, place: str) -> str:
        """The name of a class in a list, where the list may have its number."""
        if is_number(label) and float(label) % 1:
            raise UserError(
                f"{place}: {self._what} has {label} in a list, which is neither the number of a "
                "class nor 0 or 1; fix the row"
            )
        return self._by_number.get(label.removesuffix(".0"), label)

    def _check_header(self, is_row: bool, place: str) -> None:
        if is_row and self._header_label:
            raise OptionError(
                "header",
                True,
                "if it is a row, set {header=False}",
                problem=f"{place}: the first line of the file is taken for its header, but has the "
                f"label {self._header_label!r:.40}, like a row",
            )


def _vector(parts: Sequence[str], width: int, names: tuple[str, ...], place: str) -> LabelVector:
    """The classes of a vector.

    Args:
        parts: the vector, keys of `_BITS`.
        width: length of the first vector of the file.
        names: names of all classes.
        place: "file:line", for errors.
    """
    strange = next((part for part in parts if part not in _BITS), None)
    if strange is not None:
        problem = f"{place}: {strange!r:.40} in a list is neither 0 nor 1, as in the other rows"
    elif len(parts) != width:
        problem = f"{place}: a vector of {len(parts)} numbers, but the first row has {width}"
    elif len(names) != width:
        problem = f"{place}: a vector of {width} numbers, but {len(names)} labels are named"
    else:
        return LabelVector(names, [_BITS[part] for part in parts])
    raise OptionError(
        "labels", names, "fix the row, or name as many labels with {labels}", problem=problem
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
