"""The documents of a query: gathered, in order, each once."""

import pytest

from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.errors import UserError
from tests.data.readers.candidate_files import lines


def test_rows_of_pairs_are_gathered_by_query(ranking):
    wikiqa = "q ?\tx\t0\nr ?\ty\t0\nq ?\tz\t1\nq ?\tz\t1\n"
    expected = [
        ("q ?", ("z", "z", "x"), (1, 1, 0), (), "0"),
        ("r ?", ("y",), (0,), (), "1"),
    ]
    assert ranking(("train.tsv", wikiqa)) == expected
    trecqa = 'qtext,label,atext\nq ?,0,"x"\nr ?,0,y\nq ?,1,z\nq ?,1,z\n'
    assert ranking(("train.csv", trecqa)) == expected
    named = {"query_column": "0", "document_column": "1", "label_column": "2"}
    assert ranking(("train.tsv", wikiqa), header=False, **named) == expected
    original = "QuestionID\tQuestion\tDocumentTitle\tSentence\tLabel\nQ1\tq ?\tT\tx\t1\n"
    assert ranking(("a.tsv", original)) == [("q ?", ("T x",), (1,), (), "Q1")]


def test_lists_of_the_same_query_stay_apart(ranking):
    """As a teacher's scores are written, one list a line: their order and number are kept."""
    rows = [{"query": "q", "documents": [text, "n"], "labels": [1, 0]} for text in ("x", "y")]
    expected = [("q", (text, "n"), (1, 0), (), str(n)) for n, text in enumerate(("x", "y"))]
    assert ranking(("a.jsonl", lines(*rows))) == expected


def test_rows_of_a_query_with_and_without_scores(ranking):
    first = {"query": "q", "document": "p", "label": 1}
    with pytest.raises(UserError, match="a.jsonl:1: only some of the rows of this query have sc"):
        ranking(("a.jsonl", lines(first, first | {"teacher_scores": 3})))


def test_a_negative_that_is_also_a_positive(ranking, tmp_path, capsys):
    record = {"query": "q", "pos": ["p", "r"], "neg": ["n", "p", "n"], "scores": [5, 4, 3, 2, 1]}
    expected = [("q", ("p", "r", "n", "n"), (1, 1, 0, 0), (5, 4, 3, 1), "0")]
    assert ranking(("a.jsonl", lines(record))) == expected
    said = "negatives that are also positives left out: 1; the first: "
    assert capsys.readouterr().err == f"{said}{tmp_path}/a.jsonl:1\n"
    rows = ("a.tsv", "q ?\tx\t0\nq ?\tx\t1\n")
    assert ranking(rows) == [("q ?", ("x",), (1,), (), "0")]
    (ranked,) = read_candidates(tmp_path / "a.tsv", RankingOptions(), for_training=False)
    assert ranked.input.documents == ("x", "x")
