"""Digests of examples: run directories have them, so they never change."""

import pytest

from bert_jax.data.examples import (
    Candidates,
    Choices,
    ColumnLines,
    Example,
    GoldAnswer,
    LabelVector,
    Question,
    Relevance,
    Sentence,
    digest_of,
    with_title,
)

CANDIDATES = Candidates("q", ("x", ("title", "y")))
WORDS, LINES = ("a", "b"), ColumnLines("a\nb\n\n", (0, 1), "")


@pytest.mark.parametrize(
    ("example", "digest"),
    [
        (Example("a", "x", "0"), "ed87e2aac2e50036"),
        (Example(("a", "b"), 0.5, "1"), "b08d36f5cdf7887b"),
        (Example("é", LabelVector(("x", "y"), (True, False)), "1"), "73f34a5e21e02d9f"),
        (Example(Sentence(WORDS), ("O", "B-X"), "0"), "0869f375633301d1"),
        (Example(Sentence(WORDS, LINES), None, "0"), "4809080a720dcd53"),
        (Example(Question("who ?", "the cat"), (GoldAnswer("cat", 4),), "q1"), "97c1d4b3508205fa"),
        (Example(Choices("p", ("x", "y"), "q"), 1, "7"), "f2a199fe8eb6e2c9"),
        (Example(CANDIDATES, Relevance((1.0, 0.0), (2.5, -1.0)), "7"), "6f692428f7537252"),
    ],
)
def test_digests_of_earlier_runs(example, digest):
    assert digest_of([example]) == digest
    elsewhere = Example(example.input, example.label, example.id, "f:3")
    assert digest_of([elsewhere]) == digest


def test_fields_that_a_prediction_keeps_are_in_the_digest():
    digests = {digest_of([Example("a", fields=fields)]) for fields in ({}, {"x": 1}, {"x": 2})}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("titles", "expected"), [("join", "title text"), ("pair", ("title", "text")), ("omit", "text")]
)
def test_a_document_with_its_title(titles, expected):
    assert with_title("text", "title", titles) == expected
    assert with_title("text", "", titles) == "text"
