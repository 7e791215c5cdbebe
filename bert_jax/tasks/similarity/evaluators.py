"""How good the vectors of pairs are, by whatever labels the pairs have.

numbers    correlations of cosine and label
1 and 0    for similar and other pairs: average precision of the cosine, and the accuracy at the
           threshold that is best for these very pairs
classes    accuracy of the classifier, if there is one; the mean cosine of each class
none       pairs that belong together: the mean reciprocal rank of a text's own second text
           among all second texts, and how often it comes first

Source of the choice: the evaluators of sentence-transformers.
"""

import abc
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_jax.data.examples import TextExample
from bert_jax.metrics.similarity import (
    average_precision,
    best_accuracy,
    pearson,
    reciprocal_ranks,
    spearman,
)
from bert_jax.tasks.similarity.decoding import cosine
from bert_jax.tasks.similarity.objectives import numbers_of, text_numbers


class PairEvaluator(abc.ABC):
    """The metrics of some pairs.

    Attributes:
        examples: the pairs.
        best: the name of the metric to choose by; higher is better.
    """

    best = ""

    def __init__(self, examples: Sequence[TextExample]) -> None:
        """Takes the pairs."""
        self.examples = examples

    @abc.abstractmethod
    def of(self, vectors: np.ndarray, logits: np.ndarray | None) -> dict[str, float]:
        """The metrics.

        Args:
            vectors: float32 [n, 2, D].
            logits: scores of classes, float32 [n, C]; None without classifier.
        """

    @abc.abstractmethod
    def baselines(self) -> dict[str, float]:
        """What needs no model, as `<metric>_<name>`."""


def metrics_for(examples: Sequence[TextExample], classes: tuple[str, ...]) -> PairEvaluator:
    """The metrics that the labels allow.

    Args:
        examples: one or more.
        classes: what the classifier tells apart, if there is one.
    """
    labels = {example.label for example in examples}
    if None in labels:
        return RetrievalEvaluator(examples)
    if classes and labels <= set(classes):
        return LabelAccuracyEvaluator(examples, classes)
    try:
        numbers = {float(label) for label in labels}  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return LabelAccuracyEvaluator(examples, classes)
    return (
        BinaryClassificationEvaluator(examples)
        if numbers <= {0, 1}
        else EmbeddingSimilarityEvaluator(examples)
    )


class EmbeddingSimilarityEvaluator(PairEvaluator):
    best = "spearman"

    def of(self, vectors: np.ndarray, logits: np.ndarray | None) -> dict[str, float]:
        gold, found = numbers_of(self.examples), _cosines(vectors)
        return {"spearman": spearman(gold, found), "pearson": pearson(gold, found)}

    def baselines(self) -> dict[str, float]:
        return {"spearman_overlap": spearman(numbers_of(self.examples), _overlaps(self.examples))}


class BinaryClassificationEvaluator(PairEvaluator):
    best = "average_precision"

    def of(self, vectors: np.ndarray, logits: np.ndarray | None) -> dict[str, float]:
        gold, found = numbers_of(self.examples) > 0, _cosines(vectors)
        accuracy, threshold = best_accuracy(gold, found)
        return {
            "average_precision": average_precision(gold, found),
            "best_accuracy": accuracy,
            "best_threshold": threshold,
        }

    def baselines(self) -> dict[str, float]:
        gold = numbers_of(self.examples) > 0
        share = float(gold.mean())
        return {
            "average_precision_chance": share,
            "average_precision_overlap": average_precision(gold, _overlaps(self.examples)),
            "best_accuracy_majority": max(share, 1 - share),
        }


class LabelAccuracyEvaluator(PairEvaluator):
    def __init__(self, examples: Sequence[TextExample], classes: tuple[str, ...]) -> None:
        super().__init__(examples)
        self._classes = classes
        self._gold = np.array([str(example.label) for example in examples])
        self.best = "accuracy" if classes else f"cosine_{min(self._gold)}"

    def of(self, vectors: np.ndarray, logits: np.ndarray | None) -> dict[str, float]:
        found = _cosines(vectors)
        means = {
            f"cosine_{label}": float(found[self._gold == label].mean())
            for label in sorted(set(self._gold))
        }
        if logits is None:
            return means
        told = np.array(self._classes)[logits.argmax(axis=-1)]
        return {"accuracy": float((told == self._gold).mean()), **means}

    def baselines(self) -> dict[str, float]:
        most = max(Counter(self._gold).values())
        return {"accuracy_majority": most / len(self._gold)} if self._classes else {}


class RetrievalEvaluator(PairEvaluator):
    best = "mean_reciprocal_rank"

    def of(self, vectors: np.ndarray, logits: np.ndarray | None) -> dict[str, float]:
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        unit = vectors / np.maximum(lengths, 1e-12)
        found = reciprocal_ranks(unit, text_numbers(self.examples))
        return {
            "mean_reciprocal_rank": float(found.mean()),
            "accuracy_at_1": float((found == 1).mean()),
        }

    def baselines(self) -> dict[str, float]:
        count = len(self.examples)
        return {
            "mean_reciprocal_rank_chance": float((1 / np.arange(1, count + 1)).mean()),
            "found_first_chance": 1 / count,
        }


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """float32 [n, 2, D] → float64 [n]."""
    return np.array([cosine(pair) for pair in vectors])


def _overlaps(examples: Sequence[TextExample]) -> np.ndarray:
    """The words that both texts have, as a share of those that either has, float64 [n]."""
    words = [
        (set(one.text.lower().split()), set(str(one.pair).lower().split())) for one in examples
    ]
    return np.array([len(first & second) / max(len(first | second), 1) for first, second in words])
