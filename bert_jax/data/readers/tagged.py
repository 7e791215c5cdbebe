"""Sentences and their tags from any file: columns, JSON lines, prepared data sets, plain text."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Entries, Entry, TaggedSentence
from bert_jax.data.readers.conll import (
    DOCUMENT_START,
    ColumnBlock,
    ColumnOptions,
    as_columns,
    read_blocks,
    read_sentences,
)
from bert_jax.data.readers.lines import STDIN, open_lines
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, TableOptions, format_of
from bert_jax.data.readers.texts import TextOptions, TextReader, open_texts
from bert_jax.errors import OptionError, UserError

CONLL = "conll"
CONLL_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes")

# The names of the two lists in JSON lines and data sets.
WORD_KEYS = ("words", "tokens")
TAG_KEYS = ("tags", "ner_tags", "ner", "labels")

_TRAIN_FORMATS = ("", CONLL, "jsonl")
_JSON_ENDINGS = (".jsonl", ".ndjson")

Sentence = str | tuple[str, ...] | ColumnBlock
"""A text, its words, or its words with their lines."""


@dataclasses.dataclass(frozen=True)
class TaggedOptions(ColumnOptions):
    """How a file of sentences is read; the keys of the same names in section `data`.

    Attributes:
        format: "conll", words in columns; "jsonl", an object a line with lists of words ("words" or
            "tokens") and tags ("tags", "ner_tags", "ner" or "labels"). "": by the ending of the
            file's name, "conll" where it is not that of JSON lines.
        data_dir: of "tfds:" sources, where data sets are prepared; None: TensorFlow Datasets'
            default.
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
        options: how it is read.
        needs_tags: whether it is an error that there are none.

    Raises:
        UserError: the file cannot be read, or a line is malformed; names file and line.
    """
    if options.format not in _TRAIN_FORMATS:
        raise OptionError("format", options.format, "known are conll, jsonl")
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
    """Opens sentences without tags: columns, lists of words in JSON lines, texts in any format.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:…".
        options: how columns are read; its `format` is that of `sentence_format`.
        texts: how texts are read, and the columns of tags and ids; tags are kept, and not read.
        with_lines: of a file in columns, whether all its lines are in some entry.

    Raises:
        UserError: the file cannot be read, or, while it is read, a row is malformed.
    """
    if options.format == CONLL:
        with open_lines(source) as lines:
            columns = dataclasses.replace(options, tag_column=sys.maxsize)
            blocks: Iterable[ColumnBlock] = read_blocks(lines, columns)
            if with_lines:
                blocks = _with_last_lines(blocks)
            else:
                blocks = (block for block in blocks if block.sentence.words)
            yield Entries(map(_block_entry, blocks), lines.fraction)
    elif options.format == "jsonl":
        with open_records(source, TableOptions("jsonl")) as table:
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
    """The format of sentences that the ending of a file's name stands for, "" for none."""
    return CONLL if _uncompressed(source).endswith(CONLL_ENDINGS) else format_of(source)


def add_tag_column(
    source: str | Path,
    sentences: Sequence[TaggedSentence],
    tags: Sequence[Sequence[str]],
    options: TaggedOptions,
) -> str:
    """Tagged sentences in columns, with predicted tags as a further column.

    If they are from a file in columns, the lines are those of the file, also those between its
    sentences; sentences of the file that are not among them are left out.

    Args:
        source: of the sentences.
        sentences: perhaps a part of its sentences.
        tags: of each sentence.
        options: how the source was read.
    """
    by_place = dict(zip((sentence.place for sentence in sentences), tags, strict=True))
    pieces, count = [], 0
    if source != STDIN and options.is_conll(source):
        with open_lines(source) as lines:
            for block in read_blocks(lines, options):
                if not block.sentence.words:
                    pieces.append("".join(block.lines))
                elif block.sentence.place in by_place:
                    pieces.append(block.tagged(by_place[block.sentence.place]))
                    count += 1
    if count == len(sentences):
        return "".join(pieces)
    return "".join(
        as_columns(sentence.words, *([sentence.tags] if sentence.tags else []), predicted)
        for sentence, predicted in zip(sentences, tags, strict=True)
    )


def _uncompressed(source: str | Path) -> str:
    return str(source).lower().removesuffix(".gz").removesuffix(".zst")


def _with_last_lines(blocks: Iterable[ColumnBlock]) -> Iterator[ColumnBlock]:
    """The same blocks; lines after the last sentence belong to it. Reads one block ahead."""
    blocks = iter(blocks)
    previous = next(blocks, None)
    for block in blocks:
        if previous is not None and block.sentence.words:
            yield previous
            previous = block
        elif previous is not None:
            previous = dataclasses.replace(previous, lines=previous.lines + block.lines)
    if previous is not None:
        yield previous


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


def _block_entry(block: ColumnBlock) -> Entry[Sentence]:
    return Entry(block, {}, block.sentence.place, block.sentence.id)


def _object_entry(
    record: Record, number: int, reader: TextReader, texts: TextOptions
) -> Entry[Sentence]:
    """An object with a list of words, or with a text."""
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
    id = str(record.fields.get(id_column, number))
    return Entry(_strings(record, key), other, record.place, id, label)


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
            f"{entry.place}: {DOCUMENT_START} stands in files of columns",
        )
    gold = next((key for key in TAG_KEYS if key in entry.other), entry.gold)
    return Entry(entry.item, entry.other, entry.place, entry.id, gold)
