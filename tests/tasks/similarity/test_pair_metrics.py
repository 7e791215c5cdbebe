"""The labels decide what is measured."""

import numpy as np
import pytest

from bert_jax.data.examples import Example
from bert_jax.tasks.similarity.pair_metrics import find_metrics

# Cosines 1, 0.6, 0 and -1.
VECTORS = np.array(
    [[[2, 0], [1, 0]], [[1, 0], [3, 4]], [[3, 0], [0, 1]], [[1, 1], [-2, -2]]], np.float32
)


def pairs(*labels):
    texts = [("the cat", "the cat"), ("the cat", "the dog"), ("a", "b"), ("A b", "a B")]
    return [Example(text, label) for text, label in zip(texts[: len(labels)], labels, strict=True)]


def near(**values):
    return {name: pytest.approx(value) for name, value in values.items()}


# Ranks 4 3 2 1 and 4 2 3 1: 1 - 6 × 2 / (4 × 15).
NUMBERS = near(spearman=0.8, pearson=np.corrcoef([5, 3, 4, 1], [1, 0.6, 0, -1])[0, 1])
CLASSES = ("same", "same", "other", "other")
LOGITS = np.array([[0, 1], [1, 0], [1, 0], [1, 0]], np.float32)


@pytest.mark.parametrize(
    ("labels", "classes", "logits", "metrics", "baselines"),
    [
        # Words in common: 1, 1/3, 0 and, without regard to case, 1; ranks 3.5, 2, 1, 3.5.
        ((5.0, 3.0, 4.0, 1.0), (), None, NUMBERS,
         near(spearman_overlap=np.corrcoef([4, 2, 3, 1], [3.5, 2, 1, 3.5])[0, 1])),
        ("1010", (), None,
         near(average_precision=(1 + 2 / 3) / 2, best_accuracy=0.75, best_threshold=0.8),
         near(average_precision_chance=0.5, average_precision_overlap=(0.5 + 0.5) / 2,
              best_accuracy_majority=0.5)),
        (CLASSES, ("other", "same"), LOGITS,
         near(accuracy=0.75, cosine_other=-0.5, cosine_same=0.8), near(accuracy_majority=0.5)),
        (CLASSES, (), None, near(cosine_other=-0.5, cosine_same=0.8), {}),
    ],
)  # fmt: skip
def test_metrics_of_labels(labels, classes, logits, metrics, baselines):
    pair_metrics = find_metrics(pairs(*labels), classes)
    actual = pair_metrics.metrics(VECTORS, logits)
    assert actual == metrics
    assert list(actual) == list(metrics)  # the first one chooses the best checkpoint
    assert pair_metrics.baselines() == baselines


@pytest.mark.parametrize(
    ("labels", "classes", "best"),
    [
        ("0121", ("0", "1", "2"), "accuracy"),
        ("0121", (), "spearman"),
        (("3.5", "1", "2", "1"), ("entailment", "neutral"), "spearman"),
    ],
)
def test_classes_that_are_numbers(labels, classes, best):
    assert find_metrics(pairs(*labels), classes).metric_names[0] == best


def test_pairs_that_belong_together():
    pair_metrics = find_metrics(pairs(None, None, None), ())
    east, north, west = [1, 0], [0, 1], [-1, 0]
    vectors = np.array([[east, east], [north, west], [west, north]], np.float32)
    # "the cat" has two answers: the first pair has rank 1, the others rank 2.
    mean = (1 + 1 / 2 + 1 / 2) / 3
    expected = {"mean_reciprocal_rank": mean, "accuracy@1": 1 / 3}
    assert pair_metrics.metrics(vectors, None) == pytest.approx(expected)
    chance = (1 + 1 / 2 + 1 / 3) / 3
    expected = {"mean_reciprocal_rank_chance": chance, "accuracy@1_chance": 1 / 3}
    assert pair_metrics.baselines() == pytest.approx(expected)
