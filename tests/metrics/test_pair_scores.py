"""Scores of pairs by hand, and beside scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.pair_scores import average_precision, best_accuracy, reciprocal_ranks

pairs = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=30)


def test_average_precision_by_hand():
    # From the top: right, wrong, right: precisions 1 and 2/3.
    assert average_precision([True, True, False], [3, 1, 2]) == pytest.approx((1 + 2 / 3) / 2)
    # Equal scores come together.
    assert average_precision([True, False], [1, 1]) == 0.5
    assert average_precision([False, False], [2, 1]) == 0


@pytest.mark.slow
@given(pairs)
def test_average_precision_is_that_of_sklearn(drawn):
    metrics = pytest.importorskip("sklearn.metrics")
    similar, scores = map(np.array, zip(*drawn, strict=True))
    if similar.any():
        expected = metrics.average_precision_score(similar, scores)
        assert average_precision(similar, scores) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("similar", "scores", "accuracy", "threshold"),
    [
        ([1, 1, 0, 0], [0.9, 0.7, 0.3, 0.1], 1, 0.5),
        ([1, 0, 1, 0], [0.9, 0.7, 0.3, 0.1], 0.75, 0.8),
        ([1, 1], [0.5, 0.5], 1, 0.5),
        ([0, 0], [0.5, 0.25], 1, np.nextafter(0.5, 1)),
        ([1, 0, 0], [0.5, 0.5, 0.25], 2 / 3, np.nextafter(0.5, 1)),
    ],
)
def test_the_best_threshold_by_hand(similar, scores, accuracy, threshold):
    found = best_accuracy(np.array(similar, bool), np.array(scores))
    assert found == (pytest.approx(accuracy), pytest.approx(threshold, abs=0, rel=1e-15))


@given(pairs)
def test_the_best_threshold_is_what_it_says_and_none_is_better(drawn):
    similar, scores = map(np.array, zip(*drawn, strict=True))
    accuracy, threshold = best_accuracy(similar, scores)
    assert ((scores >= threshold) == similar).mean() == pytest.approx(accuracy)
    every = [((scores >= other) == similar).mean() for other in np.arange(-1, 8)]
    assert accuracy == pytest.approx(max(every))


def test_ranks_by_hand():
    east, north, west = [1, 0], [0, 1], [-1, 0]
    vectors = np.array([[east, east], [north, west], [east, north]], np.float32)
    texts = np.arange(6).reshape(3, 2)
    # The second asks for north and its own stands at 90°, as does that of the first: 3 are as good.
    assert reciprocal_ranks(vectors, texts).tolist() == [1, 1 / 3, 1 / 2]
    texts[1, 1] = texts[0, 1]  # the same text twice is found either way
    assert reciprocal_ranks(vectors, texts).tolist() == [1, 1 / 2, 1 / 2]


def test_who_says_the_same_of_everything_finds_nothing():
    found = reciprocal_ranks(np.ones((4, 2, 3), np.float32), np.arange(8).reshape(4, 2))
    assert found.tolist() == [1 / 4] * 4


def test_ranks_in_parts_are_the_same(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(20, 2, 4))
    texts = np.random.default_rng(1).integers(0, 12, (20, 2))
    whole = reciprocal_ranks(vectors, texts)
    monkeypatch.setattr("bert_jax.metrics.pair_scores._ROWS", 7)
    assert reciprocal_ranks(vectors, texts).tolist() == whole.tolist()
