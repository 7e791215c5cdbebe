"""Scores of texts that may have several labels, or none."""

import dataclasses

import numpy as np

from bert_jax.metrics.averages import ClassScores, ratio
from bert_jax.metrics.tables import aligned


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSets:
    """The labels of n examples, gold and predicted.

    Scores are equal to scikit-learn's, with 0 for what is not defined.

    Attributes:
        labels: names of the C labels.
        gold: bool [n, C].
        predicted: bool [n, C].
    """

    labels: tuple[str, ...]
    gold: np.ndarray
    predicted: np.ndarray

    def __post_init__(self) -> None:
        if self.gold.shape != self.predicted.shape or self.gold.shape[1:] != (len(self.labels),):
            raise ValueError(
                f"label sets of shapes {self.gold.shape} and {self.predicted.shape}, not both "
                f"[n, {len(self.labels)}]"
            )

    @property
    def scores(self) -> ClassScores:
        """Precision, recall and F1 of each label, [C]."""
        both = self.gold & self.predicted
        return ClassScores(both.sum(0), self.predicted.sum(0), self.gold.sum(0))

    @property
    def subset_accuracy(self) -> float:
        """The share of examples with exactly the gold labels."""
        return _mean((self.gold == self.predicted).all(1))

    @property
    def micro_f1(self) -> float:
        """F1 of all labels of all examples together."""
        correct, total = (self.gold & self.predicted).sum(), self.gold.sum() + self.predicted.sum()
        return float(2 * correct / total) if total else 0.0

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels."""
        return _mean(self.scores.f1)

    @property
    def samples_f1(self) -> float:
        """The mean over examples of F1 of their labels; 0 for one with no label on either side."""
        correct = (self.gold & self.predicted).sum(1)
        return _mean(ratio(2 * correct, self.gold.sum(1) + self.predicted.sum(1)))

    def as_text(self) -> str:
        """The scores of each label, and their averages."""
        summary = [
            ["examples", str(len(self.gold))],
            ["subset accuracy", f"{self.subset_accuracy:.4f}"],
            ["micro f1", f"{self.micro_f1:.4f}"],
            ["macro f1", f"{self.macro_f1:.4f}"],
            ["samples f1", f"{self.samples_f1:.4f}"],
        ]
        parts = self.scores.report(self.labels), aligned(summary)
        return "\n\n".join("\n".join(lines) for lines in parts)


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if values.size else 0.0
