"""Training examples of tasks that rank: a query, a positive, and further documents."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.examples import Candidates, Example, Relevance, Text
from bert_jax.errors import OptionError, UserError

PER_POSITIVE, PER_QUERY, PER_DOCUMENT = "positive", "query", "document"
"""What a training example is made of: each positive with the negatives of its query, each query
with its documents, or each document alone with its query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankingObjective:
    """What a loss takes as a training example.

    Attributes:
        unit: `PER_POSITIVE`, `PER_QUERY` or `PER_DOCUMENT`.
        least: the number of documents that an example needs.
        needs_scores: whether every query must have scores of a teacher.
    """

    unit: str = PER_POSITIVE
    least: int = 1
    needs_scores: bool = False


class _Row(NamedTuple):
    query: int
    documents: Sequence[int]
    grades: Sequence[float]
    scores: Sequence[float]


@dataclasses.dataclass(frozen=True)
class RankingRows:
    """n training examples; texts have numbers, equal texts the same one.

    Attributes:
        texts: the texts in the order of their numbers.
        locations: "file:line" of the first example with each text.
        queries: int32 [n], the text of the query.
        documents: int32 [n, K], the texts of the documents; -1 where a query has fewer.
        grades: float32 [n, K].
        scores: a teacher's, float32 [n, K]; None: there are none.
        related: int32 [n, R], the query and all its known positives, which are no negatives for
            it; -1 where there are fewer.
        report: sentences about queries and documents that are in no example.
    """

    texts: tuple[Text, ...]
    locations: tuple[str, ...]
    queries: np.ndarray
    documents: np.ndarray
    grades: np.ndarray
    scores: np.ndarray | None
    related: np.ndarray
    report: tuple[str, ...]

    @property
    def largest_margin(self) -> float:
        """How much a teacher's scores of the first and another document differ at most."""
        if self.scores is None:
            return 0.0
        margins = np.abs(self.scores[:, :1] - self.scores)
        return float(np.where(self.documents >= 0, margins, 0).max())


def ranking_rows(
    examples: Sequence[Example[Candidates]], objective: RankingObjective, negatives: int
) -> RankingRows:
    """The training examples of queries with their documents.

    Args:
        examples: the queries, at least one; labels are `Relevance`.
        objective: what an example is.
        negatives: the number of documents of an example beside the first; those at the end of the
            list are left out.

    Raises:
        UserError: a query has no scores and needs them, or no query has documents for an example.
    """
    unit, least, needs_scores = objective.unit, objective.least, objective.needs_scores
    numbers: dict[Text, int] = {}
    locations: list[str] = []
    positives: dict[int, dict[int, None]] = {}  # by query; in the order of the files
    rows: list[_Row] = []
    unused_queries = unused_documents = 0
    for example in examples:
        query, relevance = example.input.query, example.label
        number = numbers.setdefault(query, len(numbers))
        documents = [numbers.setdefault(text, len(numbers)) for text in example.input.documents]
        locations += [example.location] * (len(numbers) - len(locations))
        known = positives.setdefault(number, {number: None})
        known |= {
            document: None
            for document, grade in zip(documents, relevance.grades, strict=True)
            if grade > 0
        }
        if needs_scores and not relevance.scores:
            problem = f"{example.location}: the query has no scores of a teacher"
            raise OptionError(
                "data.loss", None, "give them, or choose another {data.loss}", problem
            )
        query_rows = _rows(number, documents, relevance, unit, negatives)
        query_rows = [row for row in query_rows if len(row.documents) >= least]
        used = {document for row in query_rows for document in row.documents}
        unused_queries += not query_rows
        unused_documents += len(set(documents)) - len(used) if query_rows else 0
        rows += query_rows
    needed = _needed(unit, least)
    if not rows:
        raise UserError(f"{examples[0].location}: no query has {needed}; give some")
    report = []
    if unused_queries:
        report.append(f"{unused_queries:,} queries do not have {needed}: left out")
    if unused_documents:
        first = "a positive" if unit == PER_POSITIVE else "the first one"
        report.append(
            f"{unused_documents:,} documents are not read, of queries with more than {negatives} "
            f"beside {first}: raise data.negatives"
        )
    width = max(len(row.documents) for row in rows)
    related = [tuple(positives[row.query]) for row in rows]
    return RankingRows(
        texts=tuple(numbers),
        locations=tuple(locations),
        queries=np.array([row.query for row in rows], np.int32),
        documents=_table([row.documents for row in rows], width, -1, np.int32),
        grades=_table([row.grades for row in rows], width, 0, np.float32),
        scores=_table([row.scores for row in rows], width, 0, np.float32) if needs_scores else None,
        related=_table(related, max(map(len, related)), -1, np.int32),
        report=tuple(report),
    )


def _needed(unit: str, least: int) -> str:
    """The documents that a query must have for an example."""
    if unit == PER_POSITIVE:
        return "a positive and a negative document" if least > 1 else "a positive document"
    return "two documents" if least > 1 else "a document"


def _rows(
    query: int, documents: Sequence[int], relevance: Relevance, unit: str, negatives: int
) -> list[_Row]:
    """The training examples of a query."""
    grades, indices = relevance.grades, range(len(documents))
    chosen = [[index] for index in indices]  # PER_DOCUMENT
    if unit == PER_QUERY:
        chosen = [list(indices[: 1 + negatives])]
    elif unit == PER_POSITIVE:
        others = [index for index in indices if grades[index] <= 0][:negatives]
        chosen = [[index, *others] for index in indices if grades[index] > 0]
    return [
        _Row(
            query,
            [documents[index] for index in group],
            [grades[index] for index in group],
            [relevance.scores[index] for index in group] if relevance.scores else (),
        )
        for group in chosen
    ]


def _table(rows: Sequence[Sequence[float]], width: int, filler: float, dtype: Any) -> np.ndarray:
    """Rows of numbers, filled up to a width: [n, width]."""
    table: np.ndarray = np.full((len(rows), width), filler, dtype)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table
