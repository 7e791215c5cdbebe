"""The metrics of the vectors of pairs, which depend on the kind of labels of the pairs.

numbers    `CorrelationMetrics`: correlations of similarity and label
1 and 0    `BinaryMetrics`, for similar and other pairs: average precision of the similarity,
           and the accuracy at the threshold that is best for exactly these pairs
classes    `ClassMetrics`: accuracy of the classifier, if there is one; the mean
           similarity of each class, as `cosine_<class>`
none       `RetrievalMetrics`, for pairs that belong together: the mean reciprocal rank of a
           text's second text among all second texts, and how often it has rank 1 (accuracy@1)

Vectors are compared by the similarity function of the model, most often the cosine. Source of the
metrics and the names: the evaluators of sentence-transformers.
"""

import abc
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_jax.data.examples import Example, Pair
from bert_jax.metrics.similarity import (
    average_precision,
    best_accuracy,
    pearson,
    reciprocal_ranks,
    similarity_of_pair,
    spearman,
)
from bert_jax.tasks.similarity.objectives import numbers_of, text_numbers


class PairMetrics(abc.ABC):
    """The metrics of a set of pairs.

    Attributes:
        examples: the pairs.
        similarity: how two vectors are compared, see `TextVectors`.
        metric_names: the keys of `metrics`, in their order; the first one chooses the best
            checkpoint, and higher is better.
    """

    metric_names: tuple[str, ...]

    def __init__(self, examples: Sequence[Example[Pair]], similarity: str) -> None:
        self.examples, self.similarity = examples, similarity

    def metrics(self, vectors: np.ndarray, logits: np.ndarray | None) -> dict[str, float]:
        """The metrics of the pairs.

        Args:
            vectors: float32 [n, 2, X].
            logits: scores of classes, float32 [n, C]; None without a classifier.
        """
        return dict(zip(self.metric_names, self.scores(vectors, logits), strict=True))

    def similarities(self, vectors: np.ndarray) -> np.ndarray:
        """The similarity of each pair: float32 [n, 2, X] → float64 [n]."""
        return np.array([similarity_of_pair(pair, self.similarity) for pair in vectors])

    @abc.abstractmethod
    def scores(self, vectors: np.ndarray, logits: np.ndarray | None) -> tuple[float, ...]:
        """The values of `metrics`, in the order of `metric_names`."""

    @abc.abstractmethod
    def baselines(self) -> dict[str, float]:
        """Metrics without a model, as `<metric>_<baseline>`."""


def find_metrics(
    examples: Sequence[Example[Pair]], classes: tuple[str, ...], similarity: str = "cosine"
) -> PairMetrics:
    """The metrics for the labels of some pairs.

    Args:
        examples: at least one pair.
        classes: labels of the classifier, if there is one.
        similarity: how two vectors are compared.
    """
    labels = {example.label for example in examples}
    if None in labels:
        return RetrievalMetrics(examples, similarity)
    if classes and labels <= set(classes):
        return ClassMetrics(examples, similarity, classes)
    try:
        numbers = {float(label) for label in labels}
    except (TypeError, ValueError):
        return ClassMetrics(examples, similarity, classes)
    return (
        BinaryMetrics(examples, similarity)
        if numbers <= {0, 1}
        else CorrelationMetrics(examples, similarity)
    )


class CorrelationMetrics(PairMetrics):
    """For degrees of similarity: how they correlate with the similarity of the vectors."""

    metric_names = ("spearman", "pearson")

    def scores(self, vectors: np.ndarray, logits: np.ndarray | None) -> tuple[float, ...]:
        gold, similarities = numbers_of(self.examples), self.similarities(vectors)
        return spearman(gold, similarities), pearson(gold, similarities)

    def baselines(self) -> dict[str, float]:
        return {"spearman_overlap": spearman(numbers_of(self.examples), _overlaps(self.examples))}


class BinaryMetrics(PairMetrics):
    """For labels 0 and 1: how well the similarity of the vectors separates them."""

    metric_names = ("average_precision", "best_accuracy", "best_threshold")

    def scores(self, vectors: np.ndarray, logits: np.ndarray | None) -> tuple[float, ...]:
        gold, similarities = numbers_of(self.examples) > 0, self.similarities(vectors)
        return average_precision(gold, similarities), *best_accuracy(gold, similarities)

    def baselines(self) -> dict[str, float]:
        gold = numbers_of(self.examples) > 0
        share = float(gold.mean())
        return {
            "average_precision_chance": share,
            "average_precision_overlap": average_precision(gold, _overlaps(self.examples)),
            "best_accuracy_majority": max(share, 1 - share),
        }


class ClassMetrics(PairMetrics):
    """For classes: accuracy of the classifier, and the mean similarity of each class."""

    def __init__(
        self, examples: Sequence[Example[Pair]], similarity: str, classes: tuple[str, ...]
    ) -> None:
        super().__init__(examples, similarity)
        self._classes = classes
        self._gold = np.array([str(example.label) for example in examples])
        self._labels = sorted(set(self._gold))
        class_metric_names = tuple(f"{similarity}_{label}" for label in self._labels)
        self.metric_names = ("accuracy", *class_metric_names) if classes else class_metric_names

    def scores(self, vectors: np.ndarray, logits: np.ndarray | None) -> tuple[float, ...]:
        similarities = self.similarities(vectors)
        means = tuple(float(similarities[self._gold == label].mean()) for label in self._labels)
        if logits is None:
            return means
        predicted = np.array(self._classes)[logits.argmax(axis=-1)]
        return float((predicted == self._gold).mean()), *means

    def baselines(self) -> dict[str, float]:
        most = max(Counter(self._gold).values())
        return {"accuracy_majority": most / len(self._gold)} if self._classes else {}


class RetrievalMetrics(PairMetrics):
    """For pairs without labels: the rank of the second text among all second texts."""

    metric_names = ("mean_reciprocal_rank", "accuracy@1")

    def scores(self, vectors: np.ndarray, logits: np.ndarray | None) -> tuple[float, ...]:
        ranks = reciprocal_ranks(vectors, text_numbers(self.examples), self.similarity)
        return float(ranks.mean()), float((ranks == 1).mean())

    def baselines(self) -> dict[str, float]:
        count = len(self.examples)
        return {
            "mean_reciprocal_rank_chance": float((1 / np.arange(1, count + 1)).mean()),
            "accuracy@1_chance": 1 / count,
        }


def _overlaps(examples: Sequence[Example[Pair]]) -> np.ndarray:
    """The Jaccard index of the words of both texts, float64 [n]."""
    words = [[{*text.lower().split()} for text in example.input] for example in examples]
    return np.array([len(first & second) / max(len(first | second), 1) for first, second in words])
