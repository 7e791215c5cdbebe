"""Sentences and their tags from any file: columns, JSON lines, tables, data sets, plain text.

The forms of tables are in `word_tables`; a string in JSON lines is like a cell there. Entities as
characters of a text become tags of its words, see `offsets`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Example, Examples, Input, Sentence, Text, each_example
from bert_jax.data.readers.columns import (
    USUAL_IDS,
    USUAL_TAGS,
    USUAL_WORDS,
    LabelledFileOptions,
    TextOptions,
    named_column,
    no_usual_name,
    refuse_null,
    usual_column,
)
from bert_jax.data.readers.conll import CONLL, DOCUMENT_START, ColumnOptions, read_sentences
from bert_jax.data.readers.labels import names_by_number
from bert_jax.data.readers.lines import open_lines
from bert_jax.data.readers.offsets import CUT_WORDS, ERROR, Offsets, find_offsets
from bert_jax.data.readers.rows import Report, TableCounts, is_number
from bert_jax.data.readers.tables import Record, Table, format_of, is_dataset, open_records
from bert_jax.data.readers.texts import TextParser, open_texts, text_examples
from bert_jax.data.readers.word_tables import WordColumns, parts, sentence_records
from bert_jax.errors import INT32_MAX, OptionError, UserError, require_one_of

# Usual names, searched in this order, without regard to case.
_TEXTS = ("text", "sentence")
_SENTENCE_IDS = (
    *("sentence #", "sentence_id", "sentence id", "sent_id", "sentence_idx", "sentence_number"),
    *("sentence_no", "sentence"),
)


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
        cut_words: what becomes of an entity, given by its characters, that cuts a word: "error", or
            "widen", it has the whole word.
        labels: names of the tags in the order of their numbers, where files have numbers, see
            `labels.names_by_number`; (): tags are names.
    """

    FORMATS = (CONLL, "jsonl", "csv", "tsv")

    cut_words: str = ERROR

    def __post_init__(self) -> None:
        super().__post_init__()
        ColumnOptions.__post_init__(self)
        require_one_of("data.cut_words", self.cut_words, CUT_WORDS)

    def is_conll(self, source: str | Path) -> bool:
        """Whether a source of tagged sentences has its words in columns."""
        if is_dataset(source):
            return False
        form = format_of(source)  # ".tsv" is also an ending of files with columns
        return (self.format or (form if form in ("jsonl", "csv") else CONLL)) == CONLL


def _keys_of(record: Record, options: TaggedOptions, texts: Sequence[str] = ()) -> WordColumns:
    """The keys of an object: the configured ones, else usual names.

    With tags, the words may also be under one of the names in `texts`.
    """
    words, tags = options.text_column, options.label_column
    if words not in record.fields:
        words = usual_column(USUAL_WORDS, record.keys) or ""
    if tags not in record.fields:
        tags = usual_column(USUAL_TAGS, [key for key in record.fields if key != words]) or ""
    if tags and not words:
        words = usual_column(texts, [key for key in record.keys if key != tags]) or ""
    return WordColumns(words, tags, "", options.id_column or "id")


def _columns_of(table: Table, options: TaggedOptions) -> WordColumns:
    """The columns of a table: the configured ones (name or number), else usual names.

    Raises:
        OptionError: a named column is missing, or none has a usual name of words.
    """
    columns, location = table.columns or (), table.location

    def column(key: str, name: str, usual: Sequence[str], among: Sequence[str]) -> str:
        named = named_column(f"data.{key}", name, columns, location)
        return named or usual_column(usual, among) or ""

    words = column("text_column", options.text_column, (*USUAL_WORDS, *_TEXTS), columns)
    if not words:
        raise OptionError(
            "data.text_column",
            None,
            "set {data.text_column} to the words, and {data.label_column} to the tags",
            f"{location}: no column has a usual name of words ({', '.join(USUAL_WORDS)}), only "
            f"{', '.join(map(repr, columns)) or 'nothing'}",
        )
    others = [name for name in columns if name != words]
    tags = column("label_column", options.label_column, USUAL_TAGS, others)
    sentence = column("id_column", options.id_column, _SENTENCE_IDS, others)
    return WordColumns(words, tags, sentence, sentence or usual_column(USUAL_IDS, others) or "")


def read_tagged(
    source: str | Path,
    options: TaggedOptions = TaggedOptions(),
    *,
    needs_tags: bool = False,
    report: Report = TableCounts.say,
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
    for example in _read(source, options, report):
        tags = example.label
        if tags is None and needs_tags:
            key = "data.tag_column" if options.is_conll(source) else "data.label_column"
            rule = f"give each word one, or set {{{key}}} to the column that has them"
            raise OptionError(key, None, rule, f"{example.location}: the words have no tags")
        if by_number and tags is not None:
            tags = tuple(by_number.get(tag.removesuffix(".0"), tag) for tag in tags)
        yield example.labelled(tags)


def _read(
    source: str | Path, options: TaggedOptions, report: Report
) -> Iterator[Example[Sentence]]:
    """The sentences with tags as in the file."""
    if options.is_conll(source):
        with open_lines(source) as lines:
            yield from read_sentences(lines, options)
        return
    with open_records(source, options, report) as table:
        if table.columns is None or is_dataset(source):
            named = ((record, _keys_of(record, options, _TEXTS)) for record in table.records)
        else:
            names = _columns_of(table, options)
            named = ((record, names) for record in sentence_records(table, names))
        for number, (record, names) in enumerate(named):
            if offsets := find_offsets(record, options.text_column, options.label_column):
                sentence, tags = offsets.tagged(options.cut_words)
                example = _example(sentence, offsets.record, number, _at_offsets(names, offsets))
                if table.accepts(offsets.record, example):
                    yield example.labelled(tags)
                continue
            if record.fields.get(names.words) is None:
                refuse_null(_TEXTS, record.keys, record.location)
                rule = "set {data.text_column} to the list of words"
                if usual_column(_TEXTS, record.keys):
                    rule += ", or give the entities of the text by its characters, or label: []"
                raise no_usual_name(
                    *("data.text_column", "words", USUAL_WORDS), record.keys, record.location, rule
                )
            example = _word_example(record, number, names)
            if table.accepts(record, example):
                yield example.labelled(_tags(record, names, options))


def _tags(record: Record, names: WordColumns, options: TaggedOptions) -> tuple[str, ...] | None:
    """The tags of a record, () or one for each word; None: it has none."""
    location, words = record.location, _strings(record, names.words)
    if not names.tags or record.fields.get(names.tags) is None:
        return None
    tags = tuple(filter(None, _strings(record, names.tags, str | int | float)))
    if tags and not options.names and all(map(is_number, tags)):
        raise OptionError(
            "data.labels",
            (),
            "give tags by their names, or name their numbers with {data.labels}",
            f"{location}: {names.tags!r} is not a list of strings but of numbers",
        )
    if words and not tags:
        return None
    if len(tags) != len(words):
        raise UserError(
            f"{location}: {len(words)} words, but {len(tags)} tags; fix the line: each word has "
            "one, O for none"
        )
    return tags


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
        names = _keys_of(record, self._options)
        if offsets := find_offsets(record, self._options.text_column, self._options.label_column):
            names = _at_offsets(names, offsets)
            example = _example(offsets.content, offsets.record, number, names)
            if offsets.record is record:
                return example
            return dataclasses.replace(example, fields=record.fields, record=record.fields)
        if not names.words or names.words.lower() in _TEXTS:
            return _text_example(self._texts(record, number))
        return _word_example(record, number, names)


@contextlib.contextmanager
def open_sentences(
    source: str | Path, options: TaggedOptions, texts: TextOptions, *, with_lines: bool = False
) -> Iterator[Examples[Any]]:
    """Opens sentences to tag: columns, lists of words in JSON lines, texts in any format.

    Args:
        source: a file, also compressed; "-" for stdin; or "tfds:…".
        options: options for columns of words.
        texts: options for texts; the format "" means columns of words. Tags are kept, and
            read in tables only.
        with_lines: whether, for a file in columns, every line of the file is in an example.

    Raises:
        UserError: the file cannot be read; or, during iteration, a row is malformed.
    """
    if options.format == CONLL:
        columns = dataclasses.replace(options, tag_column=INT32_MAX)
        with open_lines(source) as lines:
            sentences = read_sentences(lines, columns, with_last_lines=with_lines)
            yield Examples(sentences, lines.fraction)
    elif options.format in options.FORMATS:
        with open_records(source, texts) as table:
            yield _to_tag(table, options, texts)
    else:
        with open_texts(source, texts) as examples:
            yield each_example(_text_example, examples)


def _to_tag(table: Table, options: TaggedOptions, texts: TextOptions) -> Examples[Any]:
    """The examples of a table of words, of a table of texts, or of JSON lines of either."""
    if table.columns is None:
        return table.examples(SentenceParser(options, texts))
    words = usual_column(USUAL_WORDS, table.columns)
    if words is None or options.text_column not in ("", words):
        return each_example(_text_example, text_examples(table, texts))
    names = _columns_of(table, options)
    # Tags are read only where they tell a row for each word from one for each sentence.
    read = names if names.sentence else names._replace(tags="")
    sentences = Table(sentence_records(table, read), fraction=table.fraction)
    return sentences.examples(lambda record, number: _word_example(record, number, names))


def _word_example(record: Record, number: int, names: WordColumns) -> Example[Sentence]:
    return _example(Sentence(_strings(record, names.words)), record, number, names)


def _at_offsets(names: WordColumns, offsets: Offsets) -> WordColumns:
    """The keys of a text with entities."""
    return WordColumns(offsets.text, offsets.entities, "", names.id)


def _example(input: Input, record: Record, number: int, names: WordColumns) -> Example[Input]:
    """The example of a record, without its tags; `number` counts from 0."""
    return Example(
        input,
        None,
        record.id(names.id or None, number),
        record.location,
        {name: value for name, value in record.fields.items() if name != names.words},
        names.tags,
        record.fields,
        read=tuple(filter(None, names)),
    )


def _strings(record: Record, key: str, kinds: Any = str) -> tuple[str, ...]:
    """The values of a list, or the parts of a string, see `parts`."""
    values = record.fields[key]
    if isinstance(values, str):
        values = parts(record, key)
    if not isinstance(values, list) or not all(isinstance(value, kinds) for value in values):
        raise UserError(
            f"{record.location}: {key!r} is not a list of strings; give words and tags by their "
            "names"
        )
    return tuple(map(str, values))


def _text_example(example: Example[Text]) -> Example[Any]:
    """A text to be tagged."""
    if not isinstance(example.input, str):
        raise OptionError(
            "data.text_column",
            None,
            "set {data.text_column} to the column of the words",
            f"{example.location}: a pair of texts",
        )
    if example.input.startswith(DOCUMENT_START):
        raise OptionError(
            "data.format",
            None,
            "if this is one, set {data.format=conll}",
            f"{example.location}: {DOCUMENT_START} marks a file in columns",
        )
    tags = usual_column(USUAL_TAGS, tuple(example.fields))
    return dataclasses.replace(example, label_field=tags) if tags else example
