"""Sentences and their tags from any file: columns, JSON lines, prepared data sets, plain text."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Entries, Entry, TaggedSentence
from bert_jax.data.readers.columns import record_id
from bert_jax.data.readers.conll import (
    DOCUMENT_START,
    ColumnOptions,
    ColumnSentence,
    read_blocks,
    read_sentences,
    with_last_lines,
)
from bert_jax.data.readers.lines import open_lines
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, TableOptions, format_of
from bert_jax.data.readers.texts import TextOptions, TextReader, open_texts
from bert_jax.errors import LARGEST_WHOLE, OptionError, UserError, require_one_of

CONLL = "conll"
CONLL_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes")

# The names of the two lists in JSON lines and data sets.
WORD_KEYS = ("words", "tokens")
TAG_KEYS = ("tags", "ner_tags", "ner", "labels")

_JSON_ENDINGS = (".jsonl", ".ndjson")

Sentence = str | tuple[str, ...] | ColumnSentence
"""A text, its words, or its words with their lines of the file."""


@dataclasses.dataclass(frozen=True)
class TaggedOptions(ColumnOptions):
    """How a file of sentences is read; keys of the same names in section `data`.

    Attributes:
        format: "conll", words in columns; "jsonl", one object per line with lists of words ("words"
            or "tokens") and tags ("tags", "ner_tags", "ner" or "labels"). "": selected by the file
            extension, "conll" unless it is one of JSON lines.
        data_dir: directory of prepared data sets, for "tfds:" sources; None: the default of
            TensorFlow Datasets.
    """

    format: str = ""
    data_dir: str | None = None

    def is_conll(self, source: str | Path) -> bool:
        """Whether a source of tagged sentences has its words in columns."""
        if is_dataset(source):
            return False
        form = "jsonl" if Path(_uncompressed(source)).suffix in _JSON_ENDINGS else CONLL
        return (self.format or form) == CONLL


def read_tagged(
    source: str | Path, options: TaggedOptions = TaggedOptions(), *, needs_tags: bool = False
) -> Iterator[TaggedSentence]:
    """The tagged sentences of a source, in its order.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        needs_tags: whether missing tags are an error.

    Raises:
        UserError: the file cannot be read, or a line is malformed; the message names file and line.
    """
    require_one_of("format", options.format, ("", CONLL, "jsonl"))
    if options.is_conll(source):
        with open_lines(source) as lines:
            yield from read_sentences(lines, options, needs_tags=needs_tags)
        return
    with open_records(source, TableOptions("jsonl"), options.data_dir) as table:
        for number, record in enumerate(table.records):
            yield _tagged_sentence(record, number, needs_tags=needs_tags)


@contextlib.contextmanager
def open_sentences(
    source: str | Path, options: TaggedOptions, texts: TextOptions, *, with_lines: bool = False
) -> Iterator[Entries[Sentence]]:
    """Opens sentences to tag: columns, lists of words in JSON lines, texts in any format.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:…".
        options: options for columns; its `format` is the result of `sentence_format`.
        texts: options for texts, with the columns of tags and ids; tags are kept and not read.
        with_lines: whether, for a file in columns, every line of the file is in an entry.

    Raises:
        UserError: the file cannot be read; or, during iteration, a row is malformed.
    """
    if options.format == CONLL:
        with open_lines(source) as lines:
            columns = dataclasses.replace(options, tag_column=LARGEST_WHOLE)
            sentences: Iterable[ColumnSentence] = read_blocks(lines, columns)
            if with_lines:
                sentences = with_last_lines(sentences)
            else:
                sentences = (sentence for sentence in sentences if sentence.words)
            yield Entries((Entry(one, {}, one.place, one.id) for one in sentences), lines.fraction)
    elif options.format == "jsonl":
        with open_records(source, texts.table()) as table:
            reader = TextReader(texts.columns)
            objects = (
                _object_entry(record, number, reader, texts)
                for number, record in enumerate(table.records)
            )
            yield Entries(objects, table.fraction)
    else:
        with open_texts(source, texts) as text_entries:
            yield Entries(map(_text_entry, text_entries), text_entries.fraction)


def sentence_format(source: str | Path) -> str:
    """The sentence format for the extension of a file's name, "" if it is unknown."""
    return CONLL if _uncompressed(source).endswith(CONLL_ENDINGS) else format_of(source)


def _uncompressed(source: str | Path) -> str:
    return str(source).lower().removesuffix(".gz").removesuffix(".zst")


def _tagged_sentence(record: Record, number: int, *, needs_tags: bool) -> TaggedSentence:
    place = record.place
    key = next((key for key in WORD_KEYS if key in record.fields), None)
    if key is None:
        raise UserError(f"{place}: there is no list {WORD_KEYS[0]!r} or {WORD_KEYS[1]!r}; give one")
    entry = _word_entry(record, number, key, TAG_KEYS, "id")
    tags = None
    if entry.other.get(entry.gold) is not None:
        tags = _strings(record, entry.gold)
    elif needs_tags:
        raise UserError(
            f"{place}: there is no list of tags ({', '.join(map(repr, TAG_KEYS))}); give one"
        )
    if tags is not None and len(tags) != len(entry.item):
        raise UserError(f"{place}: {len(entry.item)} words, but {len(tags)} tags; fix the line")
    return TaggedSentence(entry.item, tags, entry.id, place)


def _object_entry(
    record: Record, number: int, reader: TextReader, texts: TextOptions
) -> Entry[Sentence]:
    """The entry of an object with a list of words, or with a text."""
    key = next((key for key in (texts.text_column, *WORD_KEYS) if key in record.fields), None)
    if key is None or isinstance(record.fields[key], str):
        return _text_entry(reader.entry(record, number))
    gold = (texts.label_column,) if texts.label_column else TAG_KEYS
    return _word_entry(record, number, key, gold, texts.id_column or "id")


def _word_entry(
    record: Record, number: int, key: str, gold: Sequence[str], id_column: str
) -> Entry[Any]:
    other = {name: value for name, value in record.fields.items() if name != key}
    label = next((name for name in gold if name in other), "")
    id = record_id(record.fields, id_column, number, record.place)
    return Entry(_strings(record, key), other, record.place, id, label, record.fields)


def _strings(record: Record, key: str) -> tuple[str, ...]:
    values = record.fields[key]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UserError(
            f"{record.place}: {key!r} is not a list of strings; give words and tags by their names"
        )
    return tuple(values)


def _text_entry(entry: Entry[str | tuple[str, str]]) -> Entry[Sentence]:
    if not isinstance(entry.item, str):
        raise OptionError(
            "text_column",
            None,
            "set {text_column} to the one that has the words",
            f"{entry.place}: a pair of texts",
        )
    if entry.item.startswith(DOCUMENT_START):
        raise OptionError(
            "format",
            None,
            "if this is one, set {format=conll}",
            f"{entry.place}: {DOCUMENT_START} marks a file in columns",
        )
    gold = next((key for key in TAG_KEYS if key in entry.other), entry.gold)
    return Entry(entry.item, entry.other, entry.place, entry.id, gold, entry.columns)
