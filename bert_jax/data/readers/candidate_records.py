"""The records of a file of queries with documents, in the forms that `ranking` lists."""

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax.data.readers.candidate_columns import JSON, RankingOptions
from bert_jax.data.readers.candidates import are_ids
from bert_jax.data.readers.collection import page_name
from bert_jax.data.readers.rows import Report, is_number
from bert_jax.data.readers.squad import is_squad, question_records
from bert_jax.data.readers.tables import (
    Record,
    Table,
    first_row,
    format_of,
    open_records,
    string_field,
)
from bert_jax.errors import OptionError

# Tables without a header by the number of their columns: MS MARCO's triples, pairs with a label, a
# teacher's scores (Hofstätter et al., 2020).
_PAIRS, _TRIPLES = ("query", "positive"), ("query", "positive", "negative")
_LABELLED = ("query", "document", "label")
_SCORED = ("pos_score", "neg_score", *_TRIPLES)
_TEXTS = {*_TRIPLES, *_LABELLED} - {"label"}
_HEADLESS = {2: _PAIRS, 3: _TRIPLES, 5: _SCORED}


@contextlib.contextmanager
def open_table(source: str | Path, options: RankingOptions, report: Report) -> Iterator[Table]:
    """The records of a file of queries with documents; for errors see `read_candidates`."""
    if options.format == JSON or is_squad(source, options):
        yield Table(_json_records(source, options))
        return
    headless: tuple[str, ...] = ()
    row = first_row(source, options)
    if any(map(is_number, row)) or not options.header:  # no column has a number as its name
        options = dataclasses.replace(options, header=False)
        headless = () if options.names_columns else _names_of(row, options)
        if headless:
            _check_texts(row, headless, options, source)
            _check_negative(row, headless, source)
    is_plain = (options.format or format_of(source)) == "text"
    with open_records(source, options, report, headless=headless) as table:
        yield Table(_two_views(table.records)) if is_plain else table


def _names_of(row: tuple[str, ...], options: RankingOptions) -> tuple[str, ...]:
    """The columns of a table without a header; (): they must be named by number."""
    if len(row) == 3 and is_number(row[-1]) and not options.corpus:
        return _LABELLED
    return _HEADLESS.get(len(row), ())


def _check_texts(
    row: tuple[str, ...], names: tuple[str, ...], options: RankingOptions, source: str | Path
) -> None:
    """Refuses ids where texts are expected."""
    others = {
        name for name in _TEXTS if not (options.queries if name == "query" else options.corpus)
    }
    texts = [text for name, text in zip(names, row, strict=True) if name in others]
    if texts and are_ids(texts):
        raise OptionError(
            "data.corpus",
            "",
            "name the files with the texts as {data.corpus} and {data.queries}, set "
            "{data.format=judgements} for judgements, or, if these are texts, number the columns "
            "from {data.query_column=0} on",
            f"{source}: the first line, {', '.join(map(repr, row)):.80}, has ids in place of texts",
        )


def _check_negative(row: tuple[str, ...], names: tuple[str, ...], source: str | Path) -> None:
    """Refuses a number of one digit as the negative's id: it may be the grade of a judgement."""
    if names == _TRIPLES and re.fullmatch(r"-?\d", row[-1].strip()):
        raise OptionError(
            "data.format",
            "",
            "set {data.format=judgements} if it is a grade, or, if it is the negative, "
            "{data.query_column=0}, {data.positive_column=1} and {data.negative_column=2}",
            f"{source}: the third column of the first line, {', '.join(map(repr, row)):.80}, may "
            "be a grade or the id of a negative",
        )


def _two_views(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        text = record.fields["text"]
        if text.strip():
            yield Record({"query": text, "positive": text}, record.location)


def _json_records(source: str | Path, options: RankingOptions) -> Iterator[Record]:
    for record, is_in_article in question_records(source, options):
        if is_in_article:
            title = string_field(record.fields, "title", record.location)
            record.fields["title"] = page_name(title)
        yield record
