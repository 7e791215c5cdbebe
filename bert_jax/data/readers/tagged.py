"""Sentences and their tags from any file: columns, JSON lines, tables, data sets, plain text."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Example, Examples, Sentence, Text
from bert_jax.data.readers.columns import (
    USUAL_TAGS,
    USUAL_WORDS,
    LabelledFileOptions,
    TextOptions,
    record_id,
    usual_column,
)
from bert_jax.data.readers.conll import (
    DOCUMENT_START,
    ColumnOptions,
    read_blocks,
    read_sentences,
    with_last_lines,
)
from bert_jax.data.readers.labels import names_by_number
from bert_jax.data.readers.lines import open_lines, uncompressed_name
from bert_jax.data.readers.rows import Report, TableShape, is_number
from bert_jax.data.readers.sources import is_dataset, open_records
from bert_jax.data.readers.tables import Record, Table, format_of
from bert_jax.data.readers.texts import TextParser, open_texts, text_examples
from bert_jax.data.readers.word_tables import WordColumns, word_records
from bert_jax.errors import LARGEST_WHOLE, OptionError, UserError

CONLL = "conll"
CONLL_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes")


@dataclasses.dataclass(frozen=True)
class TaggedOptions(LabelledFileOptions, ColumnOptions):
    """How a file of sentences is read; keys of the same names in section `data`.

    Attributes:
        format: "conll", words in columns; "jsonl", one object per line with lists of words and of
            tags; "csv" or "tsv", a table, see `word_tables`. "": selected by the file extension,
            "conll" unless it is JSON lines or CSV.
        text_column: key or column of the words in JSON lines and tables.
        label_column: key or column of the tags.
        id_column: key or column of the id; in a table, of the sentence that a row belongs to.
        labels: names of the tags in the order of their numbers, where files have numbers, see
            `labels.names_by_number`; (): tags are names.
    """

    FORMATS = (CONLL, "jsonl", "csv", "tsv")

    def __post_init__(self) -> None:
        super().__post_init__()
        ColumnOptions.__post_init__(self)

    def keys(self, record: Record) -> WordColumns:
        """The keys of an object; `words` may be missing."""
        words, tags = self.text_column, self.label_column
        if words not in record.fields:
            words = usual_column(USUAL_WORDS, record.keys) or ""
        if tags not in record.fields:
            tags = usual_column(USUAL_TAGS, [key for key in record.fields if key != words]) or ""
        return WordColumns(words, tags, None, self.id_column or "id")

    def is_conll(self, source: str | Path) -> bool:
        """Whether a source of tagged sentences has its words in columns."""
        if is_dataset(source):
            return False
        form = format_of(source)  # ".tsv" is an ending of files with columns, too
        return (self.format or (form if form in ("jsonl", "csv") else CONLL)) == CONLL


def read_tagged(
    source: str | Path,
    options: TaggedOptions = TaggedOptions(),
    *,
    needs_tags: bool = False,
    report: Report = TableShape.say,
) -> Iterator[Example[Sentence]]:
    """The tagged sentences of a source, in its order.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:NAME[/CONFIG][:VERSION][:SPLIT]".
        options: options of the reader.
        needs_tags: whether missing tags are an error.
        report: see `Report`.

    Raises:
        UserError: the file cannot be read, or a line is malformed; the message names file and line.
    """
    by_number = names_by_number(options.names)
    for example in _read(source, options, report, needs_tags=needs_tags):
        if by_number and example.label is not None:
            tags = (by_number.get(tag.removesuffix(".0"), tag) for tag in example.label)
            example = dataclasses.replace(example, label=tuple(tags))
        yield example


def _read(
    source: str | Path, options: TaggedOptions, report: Report, *, needs_tags: bool
) -> Iterator[Example[Sentence]]:
    """The sentences with tags as in the file."""
    if options.is_conll(source):
        with open_lines(source) as lines:
            yield from read_sentences(lines, options, needs_tags=needs_tags)
        return
    with open_records(source, options, report) as table:
        columns = (
            None
            if table.columns is None or is_dataset(source)
            else WordColumns.find(table, options)
        )
        records = word_records(table, columns) if columns else table.records
        for number, record in enumerate(records):
            yield _tagged_sentence(
                record, number, columns or options.keys(record), options, needs_tags=needs_tags
            )


class SentenceParser:
    """Makes examples of records that have a list of words, or a text, to be tagged.

    Tags are columns like any other.
    """

    def __init__(self, options: TaggedOptions, texts: TextOptions) -> None:
        """Takes the options for words, and those for texts."""
        self._options, self._texts = options, TextParser(texts)

    def __call__(self, record: Record, number: int) -> Example[Any]:
        """The example of a record; its input is a `Sentence` or a text. `number` counts from 0.

        Raises:
            UserError: the record has neither, or a pair of texts.
        """
        columns = self._options.keys(record)
        if isinstance(record.fields.get(columns.words, ""), str):
            return _of_text(self._texts(record, number))
        return _of_words(record, number, columns)


@contextlib.contextmanager
def open_sentences(
    source: str | Path, options: TaggedOptions, texts: TextOptions, *, with_lines: bool = False
) -> Iterator[Examples[Any]]:
    """Opens sentences to tag: columns, lists of words in JSON lines, texts in any format.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:…".
        options: options for columns of words.
        texts: options for texts; the format "" stands for columns of words. Tags are kept, and
            read in tables only.
        with_lines: whether, for a file in columns, every line of the file is in an example.

    Raises:
        UserError: the file cannot be read; or, during iteration, a row is malformed.
    """
    if options.format == CONLL:
        with open_lines(source) as lines:
            columns = dataclasses.replace(options, tag_column=LARGEST_WHOLE)
            sentences = read_blocks(lines, columns)
            if with_lines:
                sentences = with_last_lines(sentences)
            else:
                sentences = (sentence for sentence in sentences if sentence.input.words)
            yield Examples(sentences, lines.fraction)
    elif options.format in options.FORMATS:
        with open_records(source, texts) as table:
            yield Examples(_examples(table, options, texts), table.fraction)
    else:
        with open_texts(source, texts) as examples:
            yield Examples(map(_of_text, examples), examples.fraction)


def sentence_format(source: str | Path) -> str:
    """The sentence format for the extension of a file's name, "" if it is unknown."""
    return CONLL if uncompressed_name(source).endswith(CONLL_ENDINGS) else format_of(source)


def _examples(table: Table, options: TaggedOptions, texts: TextOptions) -> Iterator[Example[Any]]:
    """The examples of a table of words, of a table of texts, or of JSON lines of either."""
    if table.columns is None:
        yield from map(SentenceParser(options, texts), table.records, itertools.count())
    elif not _is_word_table(table.columns, options):
        yield from map(_of_text, text_examples(table, texts))
    else:
        columns = WordColumns.find(table, options)
        # Tags are read only where they tell a row for each word from one for each sentence.
        read = columns if columns.sentence else dataclasses.replace(columns, tags=None)
        for number, record in enumerate(word_records(table, read)):
            yield _of_words(record, number, columns)


def _is_word_table(columns: Sequence[str], options: TaggedOptions) -> bool:
    """Whether a table has words to tag; otherwise it has texts."""
    words = usual_column(USUAL_WORDS, columns)
    return words is not None and options.text_column in ("", words)


def _tagged_sentence(
    record: Record, number: int, columns: WordColumns, options: TaggedOptions, *, needs_tags: bool
) -> Example[Sentence]:
    location = record.location
    if columns.words not in record.fields:
        raise UserError(
            f"{location}: there is no list {USUAL_WORDS[0]!r} or {USUAL_WORDS[1]!r}; give one"
        )
    example = _of_words(record, number, columns)
    words, column = example.input.words, example.label_field
    tags: tuple[str, ...] | None = None
    if example.fields.get(column) is not None:
        tags = tuple(filter(None, _strings(record, column, str | int | float)))
    if tags and not options.names and all(map(is_number, tags)):
        raise OptionError(
            "data.labels",
            (),
            "give tags by their names, or name their numbers with data.labels",
            f"{location}: {column!r} is not a list of strings but of numbers",
        )
    if words and not tags:
        tags = None
    if tags is None and needs_tags:
        raise UserError(
            f"{location}: there is no list of tags ({', '.join(map(repr, USUAL_TAGS))}); give one"
        )
    if tags is not None and len(tags) != len(words):
        raise UserError(
            f"{location}: {len(words)} words, but {len(tags)} tags; fix the line: each word has "
            "one, O for none"
        )
    return Example(example.input, tags, example.id, location)


def _of_words(record: Record, number: int, columns: WordColumns) -> Example[Sentence]:
    return Example(
        Sentence(_strings(record, columns.words)),
        None,
        record_id(record.fields, columns.id, number, record.location),
        record.location,
        {name: value for name, value in record.fields.items() if name != columns.words},
        columns.tags or "",
        record.fields,
    )


def _strings(record: Record, key: str, kinds: Any = str) -> tuple[str, ...]:
    values = record.fields[key]
    if not isinstance(values, list) or not all(isinstance(value, kinds) for value in values):
        raise UserError(
            f"{record.location}: {key!r} is not a list of strings; give words and tags by their "
            "names"
        )
    return tuple(map(str, values))


def _of_text(example: Example[Text]) -> Example[Any]:
    """A text to be tagged."""
    if not isinstance(example.input, str):
        raise OptionError(
            "data.text_column",
            None,
            "set data.text_column to the one that has the words",
            f"{example.location}: a pair of texts",
        )
    if example.input.startswith(DOCUMENT_START):
        raise OptionError(
            "data.format",
            None,
            "if this is one, set data.format=conll",
            f"{example.location}: {DOCUMENT_START} marks a file in columns",
        )
    tags = usual_column(USUAL_TAGS, tuple(example.fields))
    return dataclasses.replace(example, label_field=tags) if tags else example
