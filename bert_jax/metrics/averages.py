"""Precision, recall and F1 from counts, class by class, with scikit-learn's rounding."""

import dataclasses

import numpy as np

from bert_jax.metrics.tables import aligned, shorten


@dataclasses.dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of each class, 0 where they are not defined (no such class predicted, or none there).

    Attributes:
        correct: int64 [C], predicted and there.
        predicted: int64 [C].
        support: int64 [C], how many there are.
    """

    correct: np.ndarray
    predicted: np.ndarray
    support: np.ndarray

    @property
    def precision(self) -> np.ndarray:
        """float64 [C]: what is right of what was predicted."""
        return ratio(self.correct, self.predicted)

    @property
    def recall(self) -> np.ndarray:
        """float64 [C]: what was found of what is there."""
        return ratio(self.correct, self.support)

    @property
    def f1(self) -> np.ndarray:
        """float64 [C]: the harmonic mean of both, 2 correct / (predicted + support)."""
        return ratio(2 * self.correct, self.predicted + self.support)

    def report(self, labels: tuple[str, ...]) -> list[str]:
        """A line for each class, numbered from 1, under a heading."""
        rows = [["class", "precision", "recall", "f1", "support"]]
        names = numbered(labels)
        for name, *scores, support in zip(
            names, self.precision, self.recall, self.f1, self.support, strict=True
        ):
            rows.append([name, *(f"{score:.4f}" for score in scores), str(support)])
        return aligned(rows)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The quotient in float64, 0 where `whole` is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole), np.float64), where=whole != 0)


def numbered(labels: tuple[str, ...]) -> list[str]:
    """The names of classes, cut to a width, with their numbers from 1, which stay unique."""
    width = len(str(len(labels)))
    return [f"{number:>{width}} {shorten(label)}" for number, label in enumerate(labels, 1)]
