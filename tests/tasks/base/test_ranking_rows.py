"""Training examples of queries, and which documents are no negatives for them."""

import pytest

from bert_jax.data.examples import Candidates, Example, Relevance
from bert_jax.errors import UserError
from bert_jax.tasks.base.ranking_rows import (
    PER_DOCUMENT,
    PER_POSITIVE,
    PER_QUERY,
    RankingObjective,
    ranking_rows,
)


def example(query, documents, grades, scores=(), line=1):
    candidates, relevance = Candidates(query, tuple(documents)), Relevance(grades, scores)
    return Example(candidates, relevance, location=f"a.jsonl:{line}")


EXAMPLES = [
    example("q", ["p", "o", "n", "m"], (2, 1, 0, 0), (4, 3, 2, 1)),
    example("r", ["o", "n"], (1, 0), (6, 5), line=2),
]
Q, P1, P2, N, M, R = range(6)  # the numbers of the texts, in their order


def test_an_example_for_each_positive():
    rows = ranking_rows(EXAMPLES, RankingObjective(unit=PER_POSITIVE, needs_scores=True), 2)
    assert rows.texts == ("q", "p", "o", "n", "m", "r")
    assert rows.locations == (*["a.jsonl:1"] * 5, "a.jsonl:2")
    assert rows.queries.tolist() == [Q, Q, R]
    assert rows.documents.tolist() == [[P1, N, M], [P2, N, M], [P2, N, -1]]
    assert rows.grades.tolist() == [[2, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert rows.scores.tolist() == [[4, 2, 1], [3, 2, 1], [6, 5, 0]]
    assert rows.related.tolist() == [[Q, P1, P2], [Q, P1, P2], [R, P2, -1]]


def test_an_example_for_each_query_or_document():
    rows = ranking_rows(EXAMPLES, RankingObjective(unit=PER_QUERY, needs_scores=True), 2)
    assert rows.documents.tolist() == [[P1, P2, N], [P2, N, -1]]
    rows = ranking_rows(EXAMPLES, RankingObjective(unit=PER_DOCUMENT), 1)
    assert rows.queries.tolist() == [Q, Q, Q, Q, R, R]
    assert rows.documents.tolist() == [[P1], [P2], [N], [M], [P2], [N]]
    assert rows.grades.ravel().tolist() == [2, 1, 0, 0, 1, 0]
    assert rows.scores is None


def test_the_positives_of_equal_queries_belong_together():
    twice = [example("q", ["p"], (1,)), example("q", ["o"], (1,))]
    rows = ranking_rows(twice, RankingObjective(unit=PER_POSITIVE), 1)
    assert rows.documents.tolist() == [[P1], [P2]]
    assert rows.related.tolist() == [[Q, P1, P2]] * 2


def test_what_is_left_out():
    examples = [*EXAMPLES, example("s", ["x"], (1,)), example("t", ["y", "z"], (0, 0))]
    rows = ranking_rows(examples, RankingObjective(unit=PER_POSITIVE), 1)
    assert rows.documents[-1].tolist() == [Q + 6 + 1, -1]
    assert rows.report == (  # t; m
        "1 queries do not have a positive document: left out",
        "1 documents are not read, of queries with more than 1 beside a positive: raise "
        "data.negatives",
    )
    rows = ranking_rows(examples, RankingObjective(unit=PER_POSITIVE, least=2), 1)
    assert rows.report[0] == "2 queries do not have a positive and a negative document: left out"
    rows = ranking_rows(examples, RankingObjective(unit=PER_QUERY, least=2), 2)
    assert rows.report == (  # s; m
        "1 queries do not have two documents: left out",
        "1 documents are not read, of queries with more than 2 beside the first one: raise "
        "data.negatives",
    )


def test_refused_examples():
    with pytest.raises(UserError, match=r"a.jsonl:1: no query has a positive document; give some"):
        ranking_rows([example("q", ["n"], (0,))], RankingObjective(unit=PER_POSITIVE), 1)
    with pytest.raises(UserError, match=r"a.jsonl:1: no query has a positive and a negative docum"):
        ranking_rows([example("q", ["n"], (1,))], RankingObjective(unit=PER_POSITIVE, least=2), 1)
    with pytest.raises(UserError, match=r"a.jsonl:1: no query has two documents; give some"):
        ranking_rows([example("q", ["n"], (1,))], RankingObjective(unit=PER_QUERY, least=2), 1)
    with pytest.raises(UserError, match=r"a.jsonl:1: the query has no scores of a teacher; give"):
        ranking_rows(
            [example("q", ["p"], (1,))], RankingObjective(unit=PER_QUERY, needs_scores=True), 1
        )
