"""Correlations and scores of pairs."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from bert_jax.metrics.similarity import (
    average_precision,
    best_accuracy,
    mean_squared_error,
    pearson,
    reciprocal_ranks,
    similarities,
    similarity_of_pair,
    spearman,
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("cosine", 0.6), ("dot", 9), ("euclidean", -4), ("manhattan", -4)],
)
def test_similarities_by_hand(kind, expected):
    pair = np.float32([[3, 0], [3, 4]])
    assert similarity_of_pair(pair, kind) == pytest.approx(expected)
    scores = similarities(pair[:1], pair, kind)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores[0, 1], expected, rtol=1e-6)


def test_opposite_vectors_and_zero():
    assert similarity_of_pair(np.float32([[1, 2], [-2, -4]])) == pytest.approx(-1)
    assert similarity_of_pair(np.zeros((2, 2), np.float32)) == 0


def test_pearson_by_hand():
    # Differences from the means: -1.5 -0.5 0.5 1.5 and -1 0 -1 2.
    gold, predicted = np.array([1, 2, 3, 4]), np.array([1, 2, 1, 4])
    assert pearson(gold, predicted) == pytest.approx(4 / math.sqrt(5 * 6), abs=1e-15)
    assert pearson(gold, 3 - 2 * gold) == pytest.approx(-1, abs=1e-15)


def test_spearman_gives_ties_their_mean_rank():
    # Ranks 1 2 3 4 and 1.5 3 1.5 4.
    gold, predicted = np.array([0.1, 0.2, 5, 100]), np.array([1, 2, 1, 4])
    expected = (-1.5 * -1 + -0.5 * 0.5 + 0.5 * -1 + 1.5 * 1.5) / math.sqrt(5 * 4.5)
    assert spearman(gold, predicted) == pytest.approx(expected, abs=1e-15)
    assert spearman(gold, np.exp(-gold)) == pytest.approx(-1, abs=1e-15)


def test_mean_squared_error_by_hand():
    assert mean_squared_error(np.array([1, 2]), np.array([0, 4])) == 2.5
    assert mean_squared_error(np.array([]), np.array([])) == 0


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_a_correlation_with_a_constant_is_zero(correlation):
    varied, constant = np.array([1.0, 2, 3]), np.array([0.1, 0.1, 0.1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert correlation(varied, constant) == 0
        assert correlation(constant, varied) == 0
        assert correlation(constant, constant) == 0
        assert correlation(np.array([1.0]), np.array([2.0])) == 0
        assert correlation(np.array([]), np.array([])) == 0


@pytest.mark.parametrize("metric", [pearson, spearman, mean_squared_error])
def test_nan_stays_nan(metric):
    assert math.isnan(metric(np.array([1.0, 2, 3]), np.array([1.0, math.nan, 3])))


def test_predictions_in_single_precision_lose_no_digits():
    predicted = np.array([0.1, 0.7, 0.2, 0.9], np.float32)
    gold = np.array([1.0, 2.5, 3.0, 4.2])
    assert pearson(gold, predicted) == pearson(gold, predicted.astype(np.float64))


pairs = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=30)


def test_average_precision_by_hand():
    # From the top: right, wrong, right: precisions 1 and 2/3.
    assert average_precision([True, True, False], [3, 1, 2]) == pytest.approx((1 + 2 / 3) / 2)
    # Equal scores come together.
    assert average_precision([True, False], [1, 1]) == 0.5
    assert average_precision([False, False], [2, 1]) == 0
    assert average_precision(np.array([], bool), np.array([])) == 0


@given(pairs)
def test_average_precision_equals_scikit_learn(drawn):
    similar, scores = map(np.array, zip(*drawn, strict=True))
    if similar.any():
        expected = average_precision_score(similar, scores)
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
    expected = pytest.approx(accuracy), pytest.approx(threshold, abs=0, rel=1e-15)
    assert best_accuracy(np.array(similar, bool), np.array(scores)) == expected


@given(pairs)
def test_no_threshold_is_better(drawn):
    similar, scores = map(np.array, zip(*drawn, strict=True))
    accuracy, threshold = best_accuracy(similar, scores)
    assert ((scores >= threshold) == similar).mean() == pytest.approx(accuracy)
    every = [((scores >= other) == similar).mean() for other in np.arange(-1, 8)]
    assert accuracy == pytest.approx(max(every))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=1, max_size=9))
def test_the_best_threshold_between_neighbouring_numbers(drawn):
    similar, steps = map(np.array, zip(*drawn, strict=True))
    for centre in (0.7, -0.3, 1.0):
        scores = centre + steps * np.spacing(centre)
        accuracy, threshold = best_accuracy(similar, scores)
        assert ((scores >= threshold) == similar).mean() == accuracy
        every = [((scores >= other) == similar).mean() for other in [*scores, 2.0]]
        assert accuracy == max(every)


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_ranks_are_counted_one_by_one(count, seed):
    """Few directions and few texts: many ties, in whole numbers, which have no rounding."""
    draw = np.random.default_rng(seed)
    vectors = draw.integers(-1, 2, (count, 2, 2)).astype(np.float32)
    texts = draw.integers(0, 6, (count, 2))
    expected = []
    for row in range(count):
        own, better = vectors[row, 0] @ vectors[row, 1], 0
        for other in range(count):
            # Neither the pair's own texts nor another answer to the same question compete.
            if texts[other, 0] == texts[row, 0] or texts[other, 1] in texts[row]:
                continue
            better += vectors[row, 0] @ vectors[other, 1] >= own
        expected.append(1 / (1 + better))
    assert reciprocal_ranks(vectors, texts).tolist() == expected


def test_ranks_by_hand():
    east, north, west = [1, 0], [0, 1], [-1, 0]
    vectors = np.array([[east, east], [north, west], [east, north]], np.float32)
    texts = np.arange(6).reshape(3, 2)
    # The second text of each pair is at least as similar to "north" as its own, at 90°: rank 3.
    assert reciprocal_ranks(vectors, texts).tolist() == [1, 1 / 3, 1 / 2]
    texts[1, 1] = texts[0, 1]  # the same text does not compete with itself
    assert reciprocal_ranks(vectors, texts).tolist() == [1, 1 / 2, 1 / 2]
    equal = np.ones((4, 2, 3), np.float32)
    assert reciprocal_ranks(equal, np.arange(8).reshape(4, 2)).tolist() == [1 / 4] * 4


def test_ranks_in_parts_are_the_same(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(20, 2, 4))
    texts = np.random.default_rng(1).integers(0, 12, (20, 2))
    whole = reciprocal_ranks(vectors, texts)
    monkeypatch.setattr("bert_jax.metrics.similarity._ROWS", 7)
    assert reciprocal_ranks(vectors, texts).tolist() == whole.tolist()
