"""Sentences in tables: a row for each word, or for each sentence with cells of words and of tags.

    Sentence #,Word,Tag            words,tags
    Sentence: 1,EU,B-ORG           "['EU', 'rejects']","['B-ORG', 'O']"
    ,rejects,O                     the call,O O

Consecutive rows with the same id of their sentence, or none, belong to it. A cell is a list, see
`label_cells`, or has its parts between blanks.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any

from bert_jax.data.readers.columns import (
    USUAL_IDS,
    USUAL_TAGS,
    USUAL_WORDS,
    LabelledFileOptions,
    named_column,
    usual_column,
)
from bert_jax.data.readers.label_cells import parse_list
from bert_jax.data.readers.tables import Record, Table
from bert_jax.errors import OptionError, UserError

# Usual names, searched in this order, without regard to case.
_TEXTS = ("sentence", "text")
_SENTENCES = (
    *("sentence #", "sentence_id", "sentence id", "sent_id", "sentence_idx", "sentence_number"),
    *("sentence_no", "sentence"),
)

# A text may begin with "( ".
_LIST = re.compile(r"\[|\(['\")\d]|(?:np\.)?array\(")
# Words may contain a no-break space.
_BLANKS = re.compile(r"[ \t\r\n]+")


@dataclasses.dataclass(frozen=True)
class WordColumns:
    """The names of columns in a table.

    Attributes:
        words: column of words.
        tags: column of tags; None: there is none.
        sentence: column of the id of the sentence that a row belongs to; None: each row is one.
        id: column of ids.
    """

    words: str
    tags: str | None
    sentence: str | None
    id: str | None

    @classmethod
    def find(cls, table: Table, options: LabelledFileOptions) -> "WordColumns":
        """The columns of a table: the configured ones (name or number), else usual names.

        Raises:
            OptionError: a named column is missing, or none has a usual name of words.
        """
        columns, location = table.columns or (), table.location
        of_words = named_column(
            "data.text_column", options.text_column, columns, location
        ) or usual_column((*USUAL_WORDS, *reversed(_TEXTS)), columns)
        if of_words is None:
            raise OptionError(
                "data.text_column",
                None,
                "set data.text_column to the words, and data.label_column to the tags",
                f"{location}: no column has a usual name of words ({', '.join(USUAL_WORDS)}), only "
                f"{', '.join(map(repr, columns)) or 'nothing'}",
            )
        others = [column for column in columns if column != of_words]
        of_tags = named_column(
            "data.label_column", options.label_column, columns, location
        ) or usual_column(USUAL_TAGS, others)
        of_sentence = named_column("data.id_column", options.id_column, columns, location)
        of_sentence = of_sentence or usual_column(_SENTENCES, others)
        return cls(of_words, of_tags, of_sentence, of_sentence or usual_column(USUAL_IDS, others))


def word_records(table: Table, columns: WordColumns) -> Iterator[Record]:
    """The sentences of a table, in order, with lists of words and of tags in their columns.

    A sentence with a row for each word has a list in each column but the one of its id.

    Raises:
        UserError: during iteration, the rows of a sentence are not together, a cell looks like a
            list and is none, or all rows have one word and no column says which sentence they
            belong to.
    """
    count, longest, last = 0, 0, ""
    for rows in _grouped(table.records, columns.sentence):
        if columns.sentence and all(_is_word(row, columns) for row in rows):
            fields: dict[str, Any] = {
                name: [row.fields[name] for row in rows] for name in rows[0].fields
            }
            for name in filter(None, (columns.words, columns.tags)):
                fields[name] = [*map(str.strip, fields[name])]
            fields[columns.sentence] = rows[0].fields[columns.sentence]
            records = [Record(fields, rows[0].location)]
        else:
            cells = [*filter(None, (columns.words, columns.tags))]
            records = [
                Record(row.fields | {name: _parts(row, name) for name in cells}, row.location)
                for row in rows
            ]
        for record in records:
            yield record
            count += 1
            longest, last = max(longest, len(record.fields[columns.words])), record.location
    if count > 1 and longest == 1 and columns.sentence is None:
        raise OptionError(
            "data.id_column",
            None,
            "set data.id_column to the column that says which sentence a row belongs to",
            f"{last}: every row has one word, but no column has a usual name of the sentence's id",
        )


def _grouped(records: Iterable[Record], sentence: str | None) -> Iterator[list[Record]]:
    """The rows of each sentence."""
    rows: list[Record] = []
    current, before = "", set()
    for record in records:
        name = record.fields[sentence].strip() if sentence else ""
        if rows and not (sentence and name in ("", current)):
            yield rows
            rows = []
        if not rows:
            if name in before:
                raise UserError(
                    f"{record.location}: the sentence {name!r:.40} has rows before, which are not "
                    "next to this one; sort the rows, or give each sentence an id of its own"
                )
            current = name
            before |= {name} - {""}
        rows.append(record)
    if rows:
        yield rows


def _is_word(row: Record, columns: WordColumns) -> bool:
    """Whether a row has a word, which may have blanks or brackets, and its tag, if it has one."""
    tag = row.fields[columns.tags].strip() if columns.tags else ""
    return not tag or _parts(row, columns.tags or "") == [tag]


def _parts(record: Record, column: str) -> list[str]:
    """The parts of a cell that is a list, or those between its blanks."""
    cell = record.fields[column].strip()
    try:
        parts = parse_list(cell) if _LIST.match(cell) else None
    except ValueError as error:
        raise UserError(
            f"{record.location}: {column!r} is {cell!r:.40}, which looks like a list, but {error}; "
            "fix the row"
        ) from error
    return [*filter(None, _BLANKS.split(cell))] if parts is None else list(parts)
