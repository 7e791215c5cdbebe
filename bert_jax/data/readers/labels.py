"""The labels of one file: classes, numbers to regress on, or several classes a row."""

import math
from collections.abc import Collection
from typing import Any

from bert_jax.data.examples import Label
from bert_jax.data.readers.tables import Record
from bert_jax.errors import OptionError, UserError


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
        suspect: str = "",
    ) -> None:
        """Begins a file.

        Args:
            column: where the label is; None: there are no labels.
            regression: whether a label is a number.
            separator: between the classes of a row that may have several; "": it has one.
            classes: the labels that there may be; (): any.
            needed: whether it is an error that there are no labels.
            suspect: what the first line has in this column, where that is known by its number
                only: a first line that is taken for a header, and is a row, has a label there.
        """
        self._column = column
        self._regression = regression
        self._separator = separator
        self._classes = classes
        self._needed = needed
        self._suspect = suspect
        self._kind: str | None = None

    def read(self, record: Record) -> Label | None:
        """The label of a record; None where its file has none.

        Raises:
            UserError: a label is empty or of another kind than the one before, is no number, or
                none of the classes.
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
                f"{place}: {self._column!r} is {value!r:.40}, which is no number; a regression "
                "needs one"
            )
        self._check_header(_is_number(self._suspect), place)
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
        if self._classes and label not in self._classes:
            known = ", ".join(self._classes)
            raise UserError(f"{place}: the label {label!r:.40} is none of {known}; mend the line")
        self._check_header(label == self._suspect, place)
        return label

    def _check_header(self, is_row: bool, place: str) -> None:
        if is_row and self._suspect:
            raise OptionError(
                "header",
                True,
                "if it is one, set {header=False}",
                f"{place}: the first line of the file is taken for its header, but has the label "
                f"{self._suspect!r:.40}, like a row",
            )


_KINDS = {str: "one label", float: "a number", tuple: "a list of labels"}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
