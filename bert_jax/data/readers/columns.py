"""Columns of text, pair, label and id, configured or by their usual names."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

from bert_jax.data.readers.glue import GlueLayout, glue_layout
from bert_jax.data.readers.tables import FileOptions, Keys, null_error
from bert_jax.errors import OptionError, require_one_of

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
USUAL_TEXTS = ("text", "sentence", "review", "comment", "content", "tweet", "question", "texts")
USUAL_CLASSES = (
    *("label", "labels", "gold_label", "class", "category", "sentiment", "emotion", "intent"),
    "target",
)
USUAL_SCORES = ("score", "similarity", "rating", "label", "target")
USUAL_IDS = ("id", "idx", "index", "guid")
USUAL_WORDS = ("words", "tokens", "word", "token")
USUAL_TAGS = ("tags", "ner_tags", "ner", "labels", "tag", "ner_tag", "label")


EMPTY = ("error", "keep")


@dataclasses.dataclass(frozen=True)
class LabelledFileOptions(FileOptions):
    """How a file of labelled texts or sentences is read; keys of the same names in section `data`.

    A column is named, or numbered from 0; "": a column with a usual name.

    Attributes:
        text_column: column of the text or the words.
        label_column: column of the label or the tags. A file without it has no labels.
        id_column: column of the id; without a usual name, the number of the row is the id.
        labels: names of the classes in the order of their numbers, see `labels`; (): the labels
            name themselves.
    """

    text_column: str = ""
    label_column: str = ""
    id_column: str = ""
    labels: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, which a command line may give as numbers."""
        return tuple(map(str, self.labels))


@dataclasses.dataclass(frozen=True)
class TextOptions(LabelledFileOptions):
    """How a file of texts is read; keys of the same names in section `data`.

    Attributes:
        format: file format, see `FileOptions`; or "glue:NAME", one of GLUE's tasks with its own
            columns, see `glue.GLUE`, where the other options are ignored.
        pair_column: column of the second text; "": none, or a usual name if `text_column` is ""
            too.
        label_columns: several labels, each with a column of 0 and 1; (): see `label_column`.
        label_separator: separator of several labels in a row; "": a row has one label.
        decimal_comma: whether numbers to regress on have a comma, as in "2,5".
        empty: whether an empty text is an error ("error") or an example ("keep", with a count on
            stderr); in prediction it is always kept.
    """

    pair_column: str = ""
    label_columns: tuple[str, ...] = ()
    label_separator: str = ""
    decimal_comma: bool = False
    empty: str = "error"

    def __post_init__(self) -> None:
        if self.layout is None:
            super().__post_init__()
        require_one_of("data.empty", self.empty, EMPTY)
        if self.label_columns and self.label_column:
            raise OptionError(
                "data.label_columns",
                self.label_columns,
                "leave out one of it and {data.label_column}",
            )

    @property
    def layout(self) -> GlueLayout | None:
        """The layout of a GLUE task; None: another file."""
        return glue_layout(self.format)

    @property
    def nested(self) -> tuple[str, ...]:
        return *super().nested, *(name for name in map(str, self.label_columns) if "." in name)

    @property
    def names(self) -> tuple[str, ...]:
        return super().names or (self.layout.classes if self.layout else ())

    def resolved(self) -> "TextOptions":
        """The same options; for a GLUE task the options of its files, which keep empty texts."""
        if (layout := self.layout) is None:
            return self
        return TextOptions(
            "tsv",
            quotes="none",
            data_dir=self.data_dir,
            text_column=layout.text,
            pair_column=layout.pair,
            label_column=layout.label,
            labels=self.names,
            empty="keep",
        )


@dataclasses.dataclass(frozen=True)
class TextColumns:
    """The columns of a file of texts.

    Attributes:
        text: column of the text.
        pair: column of the second text; None: single texts.
        label: column of the label; None: there is none.
        id: column of the id; None: there is none.
        classes: a column of 0 and 1 for each class; (): see `label`.
    """

    text: str
    pair: str | None
    label: str | None
    id: str | None
    classes: tuple[str, ...] = ()

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """The column of the text, or both columns of a pair."""
        return (self.text,) if self.pair is None else (self.text, self.pair)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple(filter(None, (*self.texts, self.label, self.id, *self.classes)))

    @property
    def without_labels(self) -> "TextColumns":
        """The columns of an object that has no label."""
        return dataclasses.replace(self, label=None, classes=())

    def require_labels(self, named: TextOptions, present: Sequence[str], location: str) -> None:
        """Checks that there is a label; the arguments are those of `find_columns`.

        Raises:
            OptionError: there is none.
        """
        if self.label is None and not self.classes:
            name = named.label_column or [*map(str, named.label_columns), "label"][0]
            refuse_null((name,), present, location)
            raise OptionError(
                "data.label_column",
                None,
                f"set {{data.label_column}}{_header_hint(present)}, or {{data.label_columns}} "
                "where each label has a column of 0 and 1",
                problem=f"{location}: there is no {_kind(present)} {name!r} among "
                f"{_names(present)}, but labels are required",
            )


def find_columns(
    named: TextOptions,
    present: Sequence[str],
    location: str,
    *,
    regression: bool = False,
) -> TextColumns:
    """Finds the columns of text, pair, label and id in a file.

    A text column that is not configured is chosen by `USUAL_PAIRS` and `USUAL_TEXTS`; if it is
    configured and the pair is not, there is no pair. A label column that is not configured is
    chosen by `USUAL_CLASSES`, for a regression first by `USUAL_SCORES`, an id by `USUAL_IDS`.

    Args:
        named: the configured columns.
        present: column names of the file, or keys of its first object.
        location: location of these names, "file:line".
        regression: whether the label is a number.

    Raises:
        OptionError: a configured text, pair or id is missing, or no column has texts; the message
            names the columns and the option to set.
    """
    if named.pair_column and not named.text_column:
        raise OptionError("data.pair_column", named.pair_column, "set {data.text_column} as well")
    if named.text_column:
        text = named_column("data.text_column", named.text_column, present, location)
        pair = named_column("data.pair_column", named.pair_column, present, location)
    else:
        text, pair = _usual_texts(present)
    if text is None:
        raise no_usual_name(
            "data.text_column",
            "a text",
            (*USUAL_TEXTS, *itertools.chain(*USUAL_PAIRS)),
            present,
            location,
            "set {data.text_column} (and {data.pair_column}, {data.label_column})",
        )
    label, classes = _label_columns(named, present, location, regression=regression)
    id = named_column("data.id_column", named.id_column, present, location) or usual_column(
        USUAL_IDS, present
    )
    return TextColumns(text, pair, label, id, classes)


def _label_columns(
    named: TextOptions, present: Sequence[str], location: str, *, regression: bool
) -> tuple[str | None, tuple[str, ...]]:
    """The column of the label, and the configured columns of classes if the file has any."""
    if named.label_columns:
        configured = tuple(map(str, named.label_columns))
        if all(_lookup(name, present) is None for name in configured):
            return None, ()
        names = (named_column("data.label_columns", name, present, location) for name in configured)
        return None, tuple(filter(None, names))
    if named.label_column:
        return _lookup(named.label_column, present), ()
    usual = (*USUAL_SCORES, *USUAL_CLASSES) if regression else (*USUAL_CLASSES, *USUAL_SCORES)
    return usual_column(usual, present), ()


def named_column(key: str, name: str, present: Sequence[str], location: str) -> str | None:
    """The column that an option names or numbers from 0; None if the option is "".

    Raises:
        OptionError: there is no such column.
    """
    column = _lookup(name, present) if name else None
    if name and column is None:
        refuse_null((name,), present, location)
        raise OptionError(
            key,
            name,
            f"set {{{key}}} to one of these, or to its number from 0",
            f"{location}: there is no {_kind(present)} {name!r}, only {_names(present)}",
        )
    return column


def no_usual_name(
    key: str, what: str, usual: Sequence[str], present: Sequence[str], location: str, rule: str
) -> OptionError:
    """The error of a table or an object in which no name is usual.

    Args:
        key: the option that names the column.
        what: what is in it, such as "a text".
        usual: the usual names.
        present: columns of a table, or the `Keys` of an object.
        location: their location, "file:line".
        rule: the remedy.

    Raises:
        UserError: an object has null under a usual name.
    """
    refuse_null(usual, present, location)
    problem = f"no column has a usual name of {what}"
    if isinstance(present, Keys):
        problem = f"there is no key {usual[0]!r} or another usual name of {what}"
    rule += _header_hint(present)
    return OptionError(key, None, rule, f"{location}: {problem}, only {_names(present)}")


def refuse_null(names: Sequence[str], present: Sequence[str], location: str) -> None:
    """Raises UserError if an object has null under one of some names."""
    null = usual_column(names, present.nulls) if isinstance(present, Keys) else None
    if null is not None:
        raise null_error(null, location)


def usual_column(names: Sequence[str], present: Sequence[str]) -> str | None:
    """The first of several names that a column has, ignoring case; None: no column has any."""
    by_lower = {column.strip().lower(): column for column in reversed(present)}
    return next((by_lower[name] for name in names if name in by_lower), None)


def _lookup(name: str, present: Sequence[str]) -> str | None:
    """A column by its name; or, if no column has this name, by its number."""
    if name in present:
        return name
    if name.isdecimal() and int(name) < len(present):
        return present[int(name)]
    return None


def _usual_texts(present: Sequence[str]) -> tuple[str | None, str | None]:
    for first, second in USUAL_PAIRS:
        text, pair = usual_column((first,), present), usual_column((second,), present)
        if text is not None and pair is not None:
            return text, pair
    nulls = present.nulls if isinstance(present, Keys) else ()
    text = usual_column(USUAL_TEXTS, (*present, *nulls))
    return None if text in nulls else text, None


def _kind(present: Sequence[str]) -> str:
    return "key" if isinstance(present, Keys) else "column"


def _names(present: Sequence[str]) -> str:
    short = (name if len(name) <= 40 else name[:39] + "…" for name in present)
    return ", ".join(map(repr, short)) or "nothing"


def _header_hint(present: Sequence[str]) -> str:
    if isinstance(present, Keys):
        return ""
    if list(present) == [str(number) for number in range(len(present))]:
        return " to numbers from 0, as the file has no header"
    return "; if this line is not a header but a row, set {data.header=false} and numbers from 0"
