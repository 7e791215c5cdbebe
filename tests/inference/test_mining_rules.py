"""The rules of hard negatives, with scores that can be compared by eye."""

import collections

import pytest

from bert_jax.data.examples import Candidates, Example, Relevance
from bert_jax.errors import OptionError
from bert_jax.inference.mining_rules import MiningOptions, ScoredQuery, candidates_of, choose
from bert_jax.search.hits import Hit

SCORES = {"a": 0.9, "b": 0.75, "c": 0.5, "d": 0.45, "e": 0.25, "f": -0.5}


def chosen(options, positives=(0.5,), scores=SCORES, number=0):
    """The negatives of a query as one word, and the counts of dropped ones."""
    names = tuple(f"positive {each}" for each in range(len(positives)))
    query = Example(Candidates("q", names), Relevance((1.0,) * len(names)))
    all_scores = {**scores, **dict(zip(names, positives, strict=True))}
    scored = ScoredQuery(query, [*scores], all_scores)
    dropped = collections.Counter()
    negatives = choose(scored, MiningOptions(**options), number, dropped)
    return "".join(negatives), dict(+dropped)


@pytest.mark.parametrize(
    ("options", "positives", "expected", "dropped"),
    [
        ({}, (0.5,), "abc", {}),
        ({"negatives": 9}, (0.5,), "abcdef", {}),
        ({"max_score": 0.75}, (0.5,), "bcd", {"max_score": 1}),
        ({"min_score": 0.5}, (0.5,), "abc", {"min_score": 3}),
        ({"absolute_margin": 0.0}, (0.5,), "cde", {"absolute_margin": 2}),
        ({"absolute_margin": 0.25}, (0.5,), "ef", {"absolute_margin": 4}),
        # Half of the positive's magnitude below it: 0.25, -0.75, and -0.25.
        ({"relative_margin": 0.5}, (0.5,), "ef", {"relative_margin": 4}),
        ({"relative_margin": 0.5}, (-0.5,), "", {"relative_margin": 6}),
        ({"relative_margin": 0.5}, (-0.25,), "f", {"relative_margin": 5}),
        # The lowest of several positives counts.
        ({"absolute_margin": 0.0}, (1.0, 0.25, 0.5), "ef", {"absolute_margin": 4}),
        # Each candidate is counted once, where the first rule drops it.
        (
            {"absolute_margin": 0.0, "max_score": 0.45, "min_score": 0.0},
            (0.5,), "de", {"absolute_margin": 2, "max_score": 1, "min_score": 1},
        ),
        # Ranks are those of the candidates that the scores leave.
        ({"range_min": 1}, (0.5,), "bcd", {"range_min": 1}),
        ({"range_min": 2, "max_score": 0.75}, (0.5,), "def", {"max_score": 1, "range_min": 2}),
        ({"range_min": 1, "range_max": 3, "negatives": 2}, (0.5,), "bc", {"range_min": 1}),
        ({"range_min": 9}, (0.5,), "", {"range_min": 6}),
    ],
)  # fmt: skip
def test_each_rule(options, positives, expected, dropped):
    assert chosen(options, positives) == (expected, dropped)


def test_candidates_are_sorted_by_the_scores_that_count():
    """A re-ranker's scores have another order than the hits; equal ones keep the hits'."""
    assert chosen({}, scores={"a": 0.1, "b": 0.7, "c": 0.3, "d": 0.7})[0] == "bdc"


def test_random_negatives_depend_on_the_seed_and_the_query_alone():
    options = {"sampling": "random", "negatives": 2, "range_min": 1, "range_max": 5}
    drawn = [chosen(options, number=number)[0] for number in range(600)]
    assert drawn == [chosen(options, number=number)[0] for number in range(600)]
    assert drawn != [chosen({**options, "seed": 1}, number=number)[0] for number in range(600)]
    counts = collections.Counter(drawn)
    # Every pair in the range is as likely: 100 times, with a deviation of 9.
    assert set(counts) == {"bc", "bd", "be", "cd", "ce", "de"}
    assert max(abs(count - 100) for count in counts.values()) < 36
    assert chosen({**options, "negatives": 4})[0] == "bcde"
    assert chosen({**options, "max_score": 0.25})[0] == "f"


@pytest.mark.parametrize(
    ("options", "rescored", "range_max"),
    [
        ({}, False, 5),
        ({"negatives": 5, "range_min": 10}, False, 17),
        ({"relative_margin": 0.05}, False, 32),
        ({"max_score": 0.5, "range_min": 4}, False, 36),
        ({"min_score": 0.5}, False, 5),
        ({"min_score": 0.5}, True, 32),
        ({"range_max": 50}, True, 50),
    ],
)
def test_the_range_by_default_is_that_of_sentence_transformers(options, rescored, range_max):
    two = Example(Candidates("q", ("a", "b", "c")), Relevance((1.0, 1.0, 0.0)))
    one = Example(Candidates("r", ("a",)), Relevance((1.0,)))
    within = MiningOptions(**options).within([one, two], is_rescored=rescored)
    assert within.range_max == range_max


def test_a_range_without_space_for_the_negatives():
    with pytest.raises(
        OptionError, match="max is 6; it must be at least 7, range_min and negatives t"
    ):
        MiningOptions(range_min=4, range_max=6)


def test_of_equal_texts_the_highest_score_counts():
    query = Example(Candidates("q", ("p",)), Relevance((1.0,)))
    hits = [Hit("a", 2.0, "x", "one"), Hit("b", 1.5, "y"), Hit("c", 1.0, "x", "two")]
    scored = candidates_of(query, hits, "omit", None)
    assert (scored.candidates, scored.scores) == (["x", "y"], {"x": 2.0, "y": 1.5})
    assert candidates_of(query, hits, "join", None).candidates == ["one x", "y", "two x"]


@pytest.mark.parametrize(
    ("name", "text", "is_part"),
    [
        ("d#0", "the words", True),
        ("d#1", "then come", True),
        ("d#2", "again", True),
        ("e#0", "words then", True),  # as many words as a passage has, wherever they are
        ("e#0", "then", False),  # a short one of another document
        ("e#0", "the word", False),
        ("e#2", "", False),
    ],
)
@pytest.mark.parametrize("title", ["", "the song"])
def test_a_passage_of_a_positive_is_no_candidate(name, text, is_part, title):
    whole = f"{title} the words  then come\nagain"
    query = Example(Candidates("q", (whole,)), Relevance((1.0,)))
    hits = [Hit(name, 1.0, text, title)]
    assert candidates_of(query, hits, "omit", 2).candidates == [text] * (not is_part)
