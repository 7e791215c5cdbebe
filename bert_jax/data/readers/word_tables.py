"""Tables of words: a row for each word, or for each sentence with cells of words and of tags.

    Sentence #,Word,Tag            words,tags
    Sentence: 1,EU,B-ORG           "['EU', 'rejects']","['B-ORG', 'O']"
    ,rejects,O                     the call,O O

Consecutive rows with the same id of their sentence, or none, belong to it. A cell is a list, see
`labels`, or has its parts between blanks.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bert_jax.data.readers.labels import parse_list
from bert_jax.data.readers.tables import Record, Table
from bert_jax.errors import OptionError, UserError

# A text may begin with "( ".
_LIST = re.compile(r"\[|\(['\")\d]|(?:np\.)?array\(")
# Words may contain a no-break space.
_BLANKS = re.compile(r"[ \t\r\n]+")


class WordColumns(NamedTuple):
    """The names of columns in a table, or of keys in an object.

    Attributes:
        words: the words; a key may be missing.
        tags: the tags; "": there are none.
        sentence: the id of the sentence that a row belongs to; "": each row is a sentence.
        id: the id.
    """

    words: str
    tags: str
    sentence: str
    id: str


def sentence_records(table: Table, names: WordColumns) -> Iterator[Record]:
    """The sentences of a table, in order, with lists of words and of tags in their columns.

    A sentence with a row for each word has a list in each column except its id.

    Raises:
        UserError: during iteration, the rows of a sentence are not together, a cell looks like a
            list and is none, or all rows have one word and no column says which sentence they
            belong to.
    """
    count, longest, last = 0, 0, ""
    for record in _joined(table.records, names):
        yield record
        count += 1
        longest, last = max(longest, len(record.fields[names.words])), record.location
    if count > 1 and longest == 1 and not names.sentence:
        raise OptionError(
            "data.id_column",
            None,
            "set {data.id_column} to the column that says which sentence a row belongs to",
            f"{last}: every row has one word, but no column has a usual name of the sentence's id",
        )


def _joined(records: Iterable[Record], names: WordColumns) -> Iterator[Record]:
    """A record for each sentence."""
    cells = [name for name in (names.words, names.tags) if name]
    for rows in _grouped(records, names.sentence) if names.sentence else ([row] for row in records):
        first = rows[0]
        if names.sentence and all(_is_word(row, names.tags) for row in rows):
            fields: dict[str, Any] = {
                key: [row.fields[key] for row in rows] for key in first.fields
            }
            fields |= {name: [*map(str.strip, fields[name])] for name in cells}
            yield Record({**fields, names.sentence: first.fields[names.sentence]}, first.location)
        else:
            for row in rows:
                lists = {name: parts(row, name) for name in cells}
                yield Record({**row.fields, **lists}, row.location)


def _grouped(records: Iterable[Record], sentence: str) -> Iterator[list[Record]]:
    """The rows of each sentence: one with an id, and those after it with the same or none."""
    rows: list[Record] = []
    ids: set[str] = set()
    current = ""
    for record in records:
        id = record.fields[sentence].strip()
        if rows and id not in ("", current):
            yield rows
            rows = []
        if not rows:
            if id in ids:
                raise UserError(
                    f"{record.location}: the sentence {id!r:.40} has rows before, which are not "
                    "next to this one; sort the rows, or give each sentence its own id"
                )
            current = id
            ids |= {id} - {""}
        rows.append(record)
    if rows:
        yield rows


def _is_word(row: Record, tags: str) -> bool:
    """Whether a row has a word, which may have blanks or brackets, and its tag, if it has one."""
    tag = row.fields[tags].strip() if tags else ""
    return not tag or parts(row, tags) == [tag]


def parts(record: Record, column: str) -> list[str]:
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
