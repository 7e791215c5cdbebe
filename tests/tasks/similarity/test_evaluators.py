"""The labels decide what is measured."""

import numpy as np
import pytest

from bert_jax.data.examples import Example
from bert_jax.tasks.similarity.evaluators import find_evaluator

# Cosines 1, 0.6, 0 and -1.
VECTORS = np.array(
    [[[2, 0], [1, 0]], [[1, 0], [3, 4]], [[3, 0], [0, 1]], [[1, 1], [-2, -2]]], np.float32
)


def pairs(*labels):
    texts = [("the cat", "the cat"), ("the cat", "the dog"), ("a", "b"), ("A b", "a B")]
    return [Example(text, label) for text, label in zip(texts[: len(labels)], labels, strict=True)]


def test_numbers():
    measure = find_evaluator(pairs(5.0, 3.0, 4.0, 1.0), ())
    assert measure.best == "spearman"
    # Ranks 4 3 2 1 and 4 2 3 1: 1 - 6 × 2 / (4 × 15).
    assert measure.metrics(VECTORS, None)["spearman"] == pytest.approx(0.8)
    expected = np.corrcoef([5, 3, 4, 1], [1, 0.6, 0, -1])[0, 1]
    assert measure.metrics(VECTORS, None)["pearson"] == pytest.approx(expected)
    # Words in common: 1, 1/3, 0 and, without regard to case, 1; ranks 3.5, 2, 1, 3.5.
    assert set(measure.baselines()) == {"spearman_overlap"}
    assert measure.baselines()["spearman_overlap"] == pytest.approx(
        np.corrcoef([4, 2, 3, 1], [3.5, 2, 1, 3.5])[0, 1]
    )


def test_similar_and_other_pairs():
    measure = find_evaluator(pairs("1", "0", "1", "0"), ())
    assert measure.best == "average_precision"
    found = measure.metrics(VECTORS, None)
    assert found == {
        "average_precision": pytest.approx((1 + 2 / 3) / 2),
        "best_accuracy": 0.75,
        "best_threshold": pytest.approx(0.8),
    }
    baselines = measure.baselines()
    assert baselines["average_precision_chance"] == 0.5
    assert baselines["best_accuracy_majority"] == 0.5


def test_classes():
    examples = pairs("same", "same", "other", "other")
    measure = find_evaluator(examples, ("other", "same"))
    logits = np.array([[0, 1], [1, 0], [1, 0], [1, 0]], np.float32)
    assert measure.best == "accuracy"
    assert measure.metrics(VECTORS, logits) == {
        "accuracy": 0.75,
        "cosine_other": pytest.approx(-0.5),
        "cosine_same": pytest.approx(0.8),
    }
    assert measure.baselines() == {"accuracy_majority": 0.5}


def test_classes_without_classifier():
    measure = find_evaluator(pairs("same", "same", "other", "other"), ())
    assert measure.best in measure.metrics(VECTORS, None)
    assert set(measure.metrics(VECTORS, None)) == {"cosine_other", "cosine_same"}
    assert measure.baselines() == {}


def test_classes_that_are_numbers():
    assert find_evaluator(pairs("0", "1", "2", "1"), ("0", "1", "2")).best == "accuracy"
    assert find_evaluator(pairs("0", "1", "2", "1"), ()).best == "spearman"
    assert find_evaluator(pairs("3.5", "1", "2", "1"), ("entailment", "neutral")).best == "spearman"


def test_pairs_that_belong_together():
    measure = find_evaluator(pairs(None, None, None), ())
    east, north, west = [1, 0], [0, 1], [-1, 0]
    vectors = np.array([[east, east], [north, west], [west, north]], np.float32)
    # "the cat" has two answers: the first pair is found first, each other one after one wrong text.
    found = measure.metrics(vectors, None)
    assert found == {
        "mean_reciprocal_rank": pytest.approx((1 + 1 / 2 + 1 / 2) / 3),
        "accuracy@1": pytest.approx(1 / 3),
    }
    assert measure.best == "mean_reciprocal_rank"
    assert measure.baselines() == {
        "mean_reciprocal_rank_chance": pytest.approx((1 + 1 / 2 + 1 / 3) / 3),
        "accuracy@1_chance": pytest.approx(1 / 3),
    }
