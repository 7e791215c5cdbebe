"""Questions with answers: for a collection, or with the passages that a reader is trained on.

Both have the forms of `ranking` and `squad`: JSON lines and tables; JSON of SQuAD and DPR. Answers
are under "answers" or "answer", in the forms of `squad.gold_answers`; in a cell of a table, several
are a list as of JSON or Python.
"""

import ast
import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Candidates, Example
from bert_jax.data.readers.candidate_columns import JUDGEMENTS, RankingOptions
from bert_jax.data.readers.candidate_records import open_table
from bert_jax.data.readers.candidates import CandidateParser
from bert_jax.data.readers.columns import usual_column
from bert_jax.data.readers.rows import Report, TableCounts
from bert_jax.data.readers.squad import (
    ANSWERS,
    SQUAD,
    gold_answers,
    is_squad,
    question_records,
)
from bert_jax.data.readers.tables import (
    FORMATS,
    FileOptions,
    Record,
    first_row,
    format_of,
    open_records,
    string_field,
)
from bert_jax.errors import OptionError, UserError
from bert_jax.process import say

QUESTIONS = ("question", "query", "text")
_HEADLESS = ("question", "answers")
_IDS = ("id", "_id", "question_id", "query_id", "qid")

Answers = tuple[str, ...] | None
"""The accepted answers to a question; (): there is none; None: they are unknown."""


@dataclasses.dataclass(frozen=True)
class OpenQuestionOptions(FileOptions):
    """How questions are read; "squad" is also the format of DPR's JSON."""

    FORMATS = (SQUAD, *FORMATS)


def read_open_questions(
    source: str | Path, options: OpenQuestionOptions = OpenQuestionOptions()
) -> Iterator[Example[str]]:
    """Questions to ask a collection; a label is `Answers`.

    Args:
        source: a file, also compressed, or "-" for stdin; in plain text a question on each line. A
            table may have no header, as DPR's; its two columns are then question and answers.
        options: options of the reader.

    Raises:
        UserError: the file cannot be read; or, during iteration, a record is malformed.
    """
    if is_squad(source, options):
        records = (record for record, _ in question_records(source, options))
        yield from map(_question, records, itertools.count())
        return
    if (options.format or format_of(source)) in ("tsv", "csv"):
        options = _table_options(source, options)
    headless = () if options.header else _HEADLESS
    with open_records(source, options, default="text", headless=headless) as table:
        yield from table.examples(_question)


def _table_options(source: str | Path, options: OpenQuestionOptions) -> OpenQuestionOptions:
    """The options of a table: whether it has a header; DPR's .csv files have tabs."""
    with_tabs = dataclasses.replace(options, format="tsv")
    row = first_row(source, with_tabs)
    if len(row) == 2 and row[1].startswith("["):
        return dataclasses.replace(with_tabs, header=False)
    row = first_row(source, options)
    is_row = len(row) == 2 and not usual_column((*QUESTIONS, *ANSWERS), row)
    return dataclasses.replace(options, header=options.header and not is_row)


def _question(record: Record, number: int) -> Example[str]:
    fields, location = record.fields, record.location
    key = usual_column(QUESTIONS, record.keys)
    text = string_field(fields, key, location) if key else ""
    if not text.strip():
        rule = f"give one as {QUESTIONS[0]!r}, which is the name of a column in a table"
        raise UserError(f"{location}: there is no question; {rule}")
    id = record.id(usual_column(_IDS, record.keys), number)
    return Example(text, _answers(record), id, location)


def read_passages(
    source: str | Path, options: RankingOptions, report: Report = TableCounts.say
) -> Iterator[Example[Candidates]]:
    """Questions with their passages, positives first; a label is `Answers`.

    Args:
        source: see `read_candidates`; passages are also under "ctxs", as in DPR's results.
        options: options of the reader.
        report: see `Report`.

    Raises:
        UserError: an option is of no use here, or the source cannot be read; or, during iteration,
            a record is malformed.
    """
    names = ("corpus", "queries", "label_column", "score_column", "require_positive")
    refused = {name: getattr(options, name) for name in names}
    refused["format"] = options.format if options.format == JUDGEMENTS else ""
    for name, value in refused.items():
        if value:
            rule = "leave it out: a reader's file has texts, and answers tell which are positives"
            raise OptionError(f"data.{name}", value, rule)
    parse = PassageParser(options)
    with open_table(source, options, report) as table:
        if table.columns:
            parse.columns(table.columns, table.location)
        yield from table.examples(parse)
    if parse.skipped:
        say(f"empty passages left out: {len(parse.skipped)}; the first: {parse.skipped[0]}")


class PassageParser(CandidateParser):
    """Makes examples of records; a label is `Answers`."""

    def __call__(self, record: Record, number: int) -> Example[Candidates]:
        columns = self.columns(record.keys, record.location).documents
        example = super().__call__(record, number)
        if not example.input.documents or {column.lower() for column in columns} & {*ANSWERS}:
            problem = f"{record.location}: the question has no passages"
            raise UserError(f"{problem}; give some, or remove it")
        read = *example.read, *ANSWERS
        return dataclasses.replace(example.labelled(_answers(record)), read=read)


def _answers(record: Record) -> Answers:
    key = usual_column(ANSWERS, record.keys)
    if key is None:
        return None
    fields, cell = record.fields, record.fields[key]
    if record.columns and isinstance(cell, str) and cell.startswith("["):
        fields = {**fields, key: _list_of(cell, key, record.location)}
    answers = gold_answers(fields, key, record.location)
    return None if answers is None else tuple(answer.text for answer in answers)


def _list_of(cell: str, key: str, location: str) -> Any:
    """A list in a cell of a table."""
    parsers: tuple[Callable[[str], Any], ...] = (json.loads, ast.literal_eval)
    for parse in parsers:
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return parse(cell)
    raise UserError(
        f"{location}: {key!r} is {cell!r:.40}, which begins as a list but is none; write one as "
        '["a", "b"]'
    )
