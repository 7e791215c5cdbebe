"""Tags of words and the names that they spell: JSON lines, or columns line by line as they were."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.data.readers.conll import (
    DOCUMENT_START,
    Block,
    ColumnOptions,
    as_columns,
    read_blocks,
)
from bert_jax.data.readers.lines import Lines, open_lines
from bert_jax.data.readers.rows import Row, Rows
from bert_jax.data.readers.sources import open_records
from bert_jax.data.readers.tables import Record, TableOptions, format_of
from bert_jax.data.readers.tagged import TAG_KEYS, WORD_KEYS
from bert_jax.data.readers.texts import TextOptions, TextReader, open_texts
from bert_jax.data.records import Output
from bert_jax.errors import OptionError, UserError
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_task import (
    JSONL,
    PredictionTask,
    PredictOptions,
    Write,
    json_lines,
)
from bert_jax.tasks.tagging.decoding import Tagging, TagPredictor, as_record

CONLL = "conll"
_ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes")

Sentence = str | tuple[str, ...] | Block
"""A text, its words, or its words with the lines that they stand on."""


@contextlib.contextmanager
def _open_sentences(source: str | Path, options: PredictOptions) -> Iterator[Rows[Sentence]]:
    """Columns, lists of words or texts in JSON lines, texts in tables, texts line by line."""
    form = options.input_format or (CONLL if _is_conll(source) else format_of(source))
    if not form and options.output_format == CONLL:
        form = CONLL
        print(
            f"{source}: read as words in columns, which --output has; if it is text, add "
            "--input-format text",
            file=sys.stderr,
        )
    if form == CONLL:
        with open_lines(source) as lines:
            yield Rows(_blocks(lines, options), lines.fraction)
    elif form == "jsonl":
        with open_records(source, TableOptions(form)) as table:
            reader = TextReader(options.reading(TextOptions, empty="keep").columns)
            rows = (
                _object(record, number, reader, options)
                for number, record in enumerate(table.records)
            )
            yield Rows(rows, table.fraction)
    else:
        with open_texts(source, options.reading(TextOptions, empty="keep")) as texts:
            yield Rows(map(_sentence, texts), texts.fraction)


def _is_conll(source: str | Path) -> bool:
    name = str(source).lower().removesuffix(".gz").removesuffix(".zst")
    return name.endswith(_ENDINGS)


def _blocks(lines: Lines, options: PredictOptions) -> Iterator[Row[Sentence]]:
    columns = ColumnOptions(
        options.word_column,
        tag_column=sys.maxsize,  # what the right tags are is nothing to predict from
        separator=options.separator or "",
        comments=options.comments or "",
    )
    blocks: Iterable[Block] = read_blocks(lines, columns)
    # Lines without words are no sentence, but a file in columns has them again.
    if options.output_format == CONLL:
        blocks = _with_the_rest(blocks)
    else:
        blocks = (block for block in blocks if block.sentence.words)
    for block in blocks:
        yield Row(block, {}, block.sentence.place, block.sentence.id)


def _with_the_rest(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same blocks, each when the next is known; the last one has the lines that follow, too."""
    blocks = iter(blocks)
    held = next(blocks, None)
    for block in blocks:
        if held is not None and block.sentence.words:
            yield held
            held = block
        elif held is not None:
            held = dataclasses.replace(held, lines=held.lines + block.lines)
    if held is not None:
        yield held


def _object(
    record: Record, number: int, reader: TextReader, options: PredictOptions
) -> Row[Sentence]:
    """An object with a list of words, or with a text."""
    fields = record.fields
    words = next((key for key in (options.text_column, *WORD_KEYS) if key in fields), None)
    if words is None or isinstance(fields[words], str):
        return _sentence(reader.row(record, number))
    found = fields[words]
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise UserError(f"{record.place}: {words!r} is neither a text nor a list of words; mend it")
    golden = (options.label_column,) if options.label_column else TAG_KEYS
    other = {key: value for key, value in fields.items() if key != words}
    return Row(
        tuple(found),
        other,
        record.place,
        str(fields.get(options.id_column or "id", number)),
        next((key for key in golden if key in other), ""),
    )


def _sentence(row: Row[str | tuple[str, str]]) -> Row[Sentence]:
    if not isinstance(row.item, str):
        raise OptionError(
            "text_column",
            None,
            "set {text_column} to the one that has the words",
            f"{row.place}: a pair of texts",
        )
    if row.item.startswith(DOCUMENT_START):
        raise OptionError(
            "format",
            None,
            f"if this is one, set {{format={CONLL}}}",
            f"{row.place}: {DOCUMENT_START} stands in files of columns",
        )
    gold = next((key for key in TAG_KEYS if key in row.other), row.gold)
    return Row(row.item, row.other, row.place, row.id, gold)


def _as_record(sentence: Sentence, found: Tagging) -> dict[str, Any]:
    return as_record(found)


@contextlib.contextmanager
def _conll(output: Output, options: PredictOptions) -> Iterator[Write[Sentence, Tagging]]:
    """Words and tags in columns; a file that was in columns gets the tags as one more."""

    def write(row: Row[Sentence], found: Tagging) -> None:
        if isinstance(row.item, Block):
            output.write(row.item.tagged(found.tags))
        else:
            output.write(as_columns((word.text for word in found.words), found.tags))

    yield write


class _SentencePredictor(TagPredictor):
    """Also takes the blocks of files in columns."""

    def prepare(self, example: Any, index: int) -> Any:
        words = example.sentence.words if isinstance(example, Block) else example
        return super().prepare(words, index)


PREDICT = PredictionTask(
    _open_sentences,
    lambda model, options: _SentencePredictor(model, options.batches()),
    {JSONL: json_lines(_as_record), CONLL: _conll},
    endings={".txt": CONLL, **dict.fromkeys(_ENDINGS, CONLL)},
    heads=(Head.TAGGING,),
)
