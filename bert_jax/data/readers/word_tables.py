"""Sentences in tables: a row for each word, or for each sentence with cells of words and of tags.

    Sentence #,Word,Tag            words,tags
    Sentence: 1,EU,B-ORG           "['EU', 'rejects']","['B-ORG', 'O']"
    ,rejects,O                     the call,O O

Consecutive rows with the same id of their sentence, or none, belong to it. A cell is a list, see
`label_cells`, or has its parts between blanks.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data.examples import TaggedSentence
from bert_jax.data.readers.columns import (
    USUAL_IDS,
    USUAL_TAGS,
    USUAL_WORDS,
    named_column,
    record_id,
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
    def find(cls, table: Table, words: str, tags: str, id: str) -> "WordColumns":
        """The columns of a table: the configured ones (name or number), else usual names.

        Raises:
            OptionError: a named column is missing, or none has a usual name of words.
        """
        columns, place = table.columns or (), table.place
        of_words = named_column("text_column", words, columns, place) or usual_column(
            (*USUAL_WORDS, *reversed(_TEXTS)), columns
        )
        if of_words is None:
            raise OptionError(
                "text_column",
                None,
                "set {text_column} to the words, and {label_column} to the tags",
                f"{place}: no column has a usual name of words ({', '.join(USUAL_WORDS)}), only "
                f"{', '.join(map(repr, columns)) or 'nothing'}",
            )
        others = [column for column in columns if column != of_words]
        of_tags = named_column("label_column", tags, columns, place) or usual_column(
            USUAL_TAGS, others
        )
        of_sentence = named_column("id_column", id, columns, place)
        of_sentence = of_sentence or usual_column(_SENTENCES, others)
        return cls(of_words, of_tags, of_sentence, of_sentence or usual_column(USUAL_IDS, others))


def read_word_table(
    table: Table, columns: WordColumns, *, needs_tags: bool = False
) -> Iterator[tuple[TaggedSentence, Sequence[Record]]]:
    """The sentences of a table with their rows, in order.

    Raises:
        UserError: during iteration, words and tags do not correspond, or required tags are missing;
            or the rows of a sentence are not together, or all rows have one word and no column says
            which sentence they belong to.
    """
    count, longest, last = 0, 0, ""
    for count, rows in enumerate(_grouped(table.records, columns.sentence), 1):
        parts = [_words_and_tags(row, columns) for row in rows]
        words = tuple(word for of_row, _ in parts for word in of_row)
        tags = tuple(tag for _, of_row in parts for tag in of_row or ())
        place = rows[0].place
        if len(tags) != len(words) and (tags or needs_tags):
            raise OptionError(
                "label_column",
                None,
                "give every word one, O for none, or set {label_column} to where they are",
                f"{place}: the sentence has {len(words)} words, but {len(tags)} tags",
            )
        id = record_id(rows[0].fields, columns.id, count - 1, place)
        yield TaggedSentence(words, tags if tags or not words else None, id, place), rows
        longest, last = max(longest, len(words)), place
    if count > 1 and longest == 1 and columns.sentence is None:
        raise OptionError(
            "id_column",
            None,
            "set {id_column} to the column that says which sentence a row belongs to",
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
                    f"{record.place}: the sentence {name!r:.40} has rows before, which are not "
                    "next to this one; sort the rows, or give each sentence an id of its own"
                )
            current = name
            before |= {name} - {""}
        rows.append(record)
    if rows:
        yield rows


def _words_and_tags(
    record: Record, columns: WordColumns
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a row, and its tags: as many, or none."""
    tags = _readings(record, columns.tags)[0] if columns.tags else ()
    is_bare = not tags or tags == (record.fields[columns.tags or ""].strip(),)
    if columns.sentence and is_bare:  # a row for each word, which may have blanks or brackets
        return (record.fields[columns.words].strip(),), tags
    readings = _readings(record, columns.words)
    if not tags:
        return readings[0], ()
    words = next((parts for parts in readings if len(parts) == len(tags)), None)
    if words is None:
        raise UserError(
            f"{record.place}: {len(readings[0])} words, but {len(tags)} tags; fix the row"
        )
    return words, tags


def _readings(record: Record, column: str) -> list[tuple[str, ...]]:
    """The parts of a cell that is a list, and those between its blanks: "( a , b )" is both.

    Raises:
        UserError: the cell looks like a list only.
    """
    cell = record.fields[column].strip()
    between = tuple(_BLANKS.split(cell)) if cell else ()
    try:
        parts = parse_list(cell)
    except ValueError as error:
        if re.match(r"\[|[({]\s*['\"]", cell):
            raise UserError(
                f"{record.place}: {column!r} is {cell!r:.40}, which looks like a list, but "
                f"{error}; fix the row"
            ) from error
        parts = None
    return [between] if parts is None else [parts, between]
