"""Runs in the format of TREC."""

import math

import pytest

from bert_jax.data.runs import read_run, run_lines, write_run
from bert_jax.errors import UserError

RUN = {"q2": {"d1": 0.1, "d9": -3.0}, "q1": {"d10": 1 / 3, "d9": 1 / 3, "é": 2.0}}


def test_a_written_run(tmp_path):
    path = tmp_path / "a.run"
    write_run(path, RUN)
    # Equal scores are in descending order of the ids, as for trec_eval.
    assert path.read_text(encoding="utf-8") == (
        "q2 Q0 d1 1 0.1 bert_jax\n"
        "q2 Q0 d9 2 -3.0 bert_jax\n"
        "q1 Q0 é 1 2.0 bert_jax\n"
        "q1 Q0 d9 2 0.3333333333333333 bert_jax\n"
        "q1 Q0 d10 3 0.3333333333333333 bert_jax\n"
    )
    assert read_run(path) == RUN


def test_columns_may_have_any_blanks_between_them(tmp_path):
    (tmp_path / "a.run").write_text("1\tQ0 d 5 -1e-3 x\n\n1 0 e  1 7 x\n")
    assert read_run(tmp_path / "a.run") == {"1": {"d": -0.001, "e": 7.0}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 Q0 d 1 0.5\n", "a.run:1: 5 columns; a line of a run is query, Q0, document, rank, sco"),
        ("1 Q0 d 1 x a\n", "a.run:1: the score is 'x'; give a finite number"),
        ("1 Q0 d 1 inf a\n", "a.run:1: the score is 'inf'; give a finite number"),
        ("1 Q0 d 1 5 a\n1 Q0 d 2 5 a\n", "a.run:2: the document 'd' of query '1' occurs twice; k"),
    ],
)
def test_refused_lines(tmp_path, content, message):
    (tmp_path / "a.run").write_text(content)
    with pytest.raises(UserError, match=message):
        read_run(tmp_path / "a.run")


@pytest.mark.parametrize(
    ("query", "scores", "message"),
    [
        ("a b", {"d": 1.0}, "^'a b' cannot be written to a run, whose columns have blanks betw"),
        (
            "a",
            {"": 1.0},
            "^'' cannot be written .*; rename it, or give an output with the ending .js",
        ),
        ("a", {"d": math.nan}, "^a score of query 'a' is not finite"),
    ],
)
def test_what_a_run_cannot_have(tmp_path, query, scores, message):
    with pytest.raises(UserError, match=message):
        run_lines(query, scores)
    with pytest.raises(UserError, match=message):
        write_run(tmp_path / "a.run", {query: scores})
    assert not (tmp_path / "a.run").exists()


def test_an_independent_reader(tmp_path):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    write_run(tmp_path / "a.run", RUN)
    with open(tmp_path / "a.run", encoding="utf-8") as file:
        assert pytrec_eval.parse_run(file) == RUN
