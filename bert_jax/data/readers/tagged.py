"""Tagged sentences from any file: columns, JSON lines, prepared data sets."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.data.examples import TaggedSentence
from bert_jax.data.readers.conll import ColumnOptions, read_sentences
from bert_jax.data.readers.lines import open_lines
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, TableOptions
from bert_jax.errors import OptionError, UserError

FORMATS = ("", "conll", "jsonl")
# The names of the two lists in JSON lines and data sets, the usual ones.
WORD_KEYS = ("words", "tokens")
TAG_KEYS = ("tags", "ner_tags", "ner", "labels")

_JSON_ENDINGS = (".jsonl", ".ndjson")


@dataclasses.dataclass(frozen=True)
class TaggedOptions:
    """How a file of tagged sentences is read; the keys of the same names in section `data`.

    Attributes:
        format: "conll", words in columns; "jsonl", an object a line with lists of words ("words" or
            "tokens") and tags ("tags", "ner_tags", "ner" or "labels"). "": by the ending of the
            file's name, "conll" where it is not that of JSON lines.
        word_column, tag_column, separator, comments: see `ColumnOptions`.
        data_dir: of "tfds:" sources, where data sets are prepared; None: TensorFlow Datasets'
            default.
    """

    format: str = ""
    word_column: int = 0
    tag_column: int = -1
    separator: str = ""
    comments: str = ""
    data_dir: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            known = ", ".join(filter(None, FORMATS))
            raise OptionError("format", self.format, f"known are {known}")

    @property
    def columns(self) -> ColumnOptions:
        """How lines of columns are read."""
        return ColumnOptions(self.word_column, self.tag_column, self.separator, self.comments)

    def is_conll(self, source: str | Path) -> bool:
        """Whether a source has its words in columns."""
        if is_dataset(source):
            return False
        by_name = Path(str(source).lower().removesuffix(".gz").removesuffix(".zst")).suffix
        return (self.format or ("jsonl" if by_name in _JSON_ENDINGS else "conll")) == "conll"


def read_tagged(
    source: str | Path, options: TaggedOptions = TaggedOptions(), *, needs_tags: bool = False
) -> Iterator[TaggedSentence]:
    """The sentences of a source, in its order.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: how it is read.
        needs_tags: whether it is an error that there are none.

    Raises:
        UserError: the file cannot be read, or a line is malformed; names file and line.
    """
    if options.is_conll(source):
        with open_lines(source) as lines:
            yield from read_sentences(lines, options.columns, needs_tags=needs_tags)
        return
    with open_records(source, TableOptions("jsonl"), options.data_dir) as table:
        for number, record in enumerate(table.records):
            yield _sentence(record, number, needs_tags=needs_tags)


def _sentence(record: Record, number: int, *, needs_tags: bool) -> TaggedSentence:
    fields, place = record.fields, record.place
    words = _strings(record, _key(fields, WORD_KEYS))
    key = _key(fields, TAG_KEYS)
    tags = None if key is None or fields[key] is None else _strings(record, key)
    if words is None:
        raise UserError(f"{place}: there is no list {WORD_KEYS[0]!r} or {WORD_KEYS[1]!r}; give one")
    if tags is None and needs_tags:
        raise UserError(
            f"{place}: there is no list of tags ({', '.join(map(repr, TAG_KEYS))}); give one"
        )
    if tags is not None and len(tags) != len(words):
        raise UserError(f"{place}: {len(words)} words, but {len(tags)} tags; mend the line")
    return TaggedSentence(words, tags, str(fields.get("id", number)), place)


def _key(fields: dict[str, Any], known: tuple[str, ...]) -> str | None:
    return next((key for key in known if key in fields), None)


def _strings(record: Record, key: str | None) -> tuple[str, ...] | None:
    if key is None:
        return None
    values = record.fields[key]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UserError(
            f"{record.place}: {key!r} is not a list of strings; give words and tags by their names"
        )
    return tuple(values)
