"""Which columns are the text, its pair, the label and the id: as told, or by their usual names."""

import dataclasses
from collections.abc import Sequence

from bert_jax.data.readers.tables import Record
from bert_jax.errors import OptionError, UserError

# Looked for from the left, without regard to case; a pair before a single text.
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
    """Columns by name, or by number from 0; "": not told.

    Attributes:
        text: the text.
        pair: its pair.
        label: the label.
        id: the id.
    """

    text: str = ""
    pair: str = ""
    label: str = ""
    id: str = ""


@dataclasses.dataclass(frozen=True)
class FoundColumns:
    """The names of columns that are there; those of `TextColumns`, or None.

    Attributes:
        text: the text.
        pair: its pair.
        label: the label.
        id: the id.
    """

    text: str
    pair: str | None
    label: str | None
    id: str | None


def find_columns(
    told: TextColumns,
    there: Sequence[str],
    place: str,
    *,
    regression: bool = False,
    needs_labels: bool = False,
) -> FoundColumns:
    """Finds the columns among those of a file.

    A text that is not told is found by `USUAL_PAIRS` and `USUAL_TEXTS`; where it is told and the
    pair is not, there is no pair. A label that is not told is found by `USUAL_CLASSES`, for a
    regression first by `USUAL_SCORES`, an id by `USUAL_IDS`.

    Args:
        told: what the config says.
        there: the names in the file, or the keys of its first object.
        place: "file:line" of the names.
        regression: whether the label is a number.
        needs_labels: whether a file without labels is an error; else its label is None.

    Raises:
        UserError: a text, a pair or an id that was told is not there, no text is found, or a label
            is needed and not there; names the columns and the key to set.
    """
    if told.pair and not told.text:
        raise OptionError("pair_column", told.pair, "set {text_column}, too")
    if told.text:
        text: str | None = _told("text_column", told.text, there, place)
        pair = _told("pair_column", told.pair, there, place) if told.pair else None
    else:
        text, pair = _usual_texts(there)
    if text is None:
        raise OptionError(
            "text_column",
            None,
            "set {text_column} (and {pair_column}, {label_column})" + _header_hint(there),
            f"{place}: no column has a usual name of a text, only {_names(there)}",
        )
    usual = (*USUAL_SCORES, *USUAL_CLASSES) if regression else (*USUAL_CLASSES, *USUAL_SCORES)
    label = _lookup(told.label, there) if told.label else usual_column(usual, there)
    if label is None and needs_labels:
        raise OptionError(
            "label_column",
            told.label,
            "set {label_column}" + _header_hint(there),
            f"{place}: there is no column {told.label or 'label'!r} among {_names(there)}, but "
            "labels are needed here",
        )
    found = _told("id_column", told.id, there, place) if told.id else usual_column(USUAL_IDS, there)
    return FoundColumns(text, pair, label, found)


def usual_column(names: Sequence[str], there: Sequence[str]) -> str | None:
    """The first of some names that a column has, without regard to case; None: no column."""
    by_lower = {column.strip().lower(): column for column in reversed(there)}
    return next((by_lower[name] for name in names if name in by_lower), None)


def record_id(record: Record, column: str | None, number: int) -> str:
    """The id of a record.

    Args:
        record: the record.
        column: where its id is; None: its number is its id.
        number: of the record, from 0.

    Raises:
        UserError: it has none.
    """
    if column is None:
        return str(number)
    id = record.fields.get(column)
    if not isinstance(id, str | int) or id == "":
        raise UserError(f"{record.place}: the id ({column!r}) is {id!r:.40}; give the row one")
    return str(id)


def _lookup(told: str, there: Sequence[str]) -> str | None:
    """A column by its name; or, where none is called so, by its number."""
    if told in there:
        return told
    if told.isdecimal() and int(told) < len(there):
        return there[int(told)]
    return None


def _told(key: str, told: str, there: Sequence[str], place: str) -> str:
    found = _lookup(told, there)
    if found is None:
        raise OptionError(
            key,
            told,
            f"set {{{key}}} to one of these, or to its number from 0",
            f"{place}: there is no column {told!r}, only {_names(there)}",
        )
    return found


def _usual_texts(there: Sequence[str]) -> tuple[str | None, str | None]:
    for first, second in USUAL_PAIRS:
        text, pair = usual_column((first,), there), usual_column((second,), there)
        if text is not None and pair is not None:
            return text, pair
    return usual_column(USUAL_TEXTS, there), None


def _names(there: Sequence[str]) -> str:
    short = (name if len(name) <= 40 else name[:39] + "…" for name in there)
    return ", ".join(map(repr, short)) or "nothing"


def _header_hint(there: Sequence[str]) -> str:
    if list(there) == [str(number) for number in range(len(there))]:
        return " to numbers from 0, as the file has no header"
    return "; if this line is no header but a row, set {header=False} and numbers from 0"
