"""Which class was taken for which: accuracy, F1, Matthews' correlation, and the matrix to see."""

import dataclasses
import io
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.metrics.averages import ClassScores, numbered
from bert_jax.metrics.tables import aligned

# The matrix is printed up to so many classes, about a terminal's width; beyond, its largest errors.
MATRIX_CLASSES = 20
MOST_ERRORS = 40
# Only so many cells get their number, the largest: text is what a picture takes its time for.
MOST_NUMBERS = 4_000


@dataclasses.dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Counts of examples by gold and predicted class; those of parts of a data set add up.

    Attributes:
        labels: names of the C classes.
        counts: int64 [C, C], gold class × predicted class.
    """

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def of(
        cls, labels: tuple[str, ...], gold: np.ndarray, predicted: np.ndarray
    ) -> "ConfusionMatrix":
        """Counts examples.

        Args:
            labels: names of the C classes.
            gold: whole numbers [n] from 0 to C - 1.
            predicted: whole numbers [n] from 0 to C - 1.

        Raises:
            ValueError: the shapes differ, or a number is that of no class.
        """
        classes = len(labels)
        gold, predicted = np.asarray(gold, np.int64), np.asarray(predicted, np.int64)
        if gold.ndim != 1 or gold.shape != predicted.shape:
            raise ValueError(f"classes of shapes {gold.shape} and {predicted.shape}, not both [n]")
        for numbers in (gold, predicted):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < classes:
                raise ValueError(f"class numbers must lie in 0 … {classes - 1}")
        counts = np.bincount(gold * classes + predicted, minlength=classes * classes)
        return cls(labels, counts.reshape(classes, classes).astype(np.int64))

    def __add__(self, other: "ConfusionMatrix") -> "ConfusionMatrix":
        if self.labels != other.labels:
            raise ValueError("matrices of different classes do not add up")
        return ConfusionMatrix(self.labels, self.counts + other.counts)

    @property
    def scores(self) -> ClassScores:
        """Precision, recall and F1 of each class, [C]."""
        return ClassScores(self.counts.diagonal(), self.counts.sum(0), self.counts.sum(1))

    @property
    def accuracy(self) -> float:
        """The share of examples on the diagonal; 0 where there are none."""
        total = int(self.counts.sum())
        return int(self.counts.trace()) / total if total else 0.0

    def f1(self, positive: str) -> float:
        """F1 of one class: MRPC's and QQP's where it is the second.

        Raises:
            UserError: there is no such class.
        """
        if positive not in self.labels:
            known = [*map(repr, self.labels[:10]), *("…" for _ in self.labels[10:11])]
            raise UserError(
                f"there is no class {positive!r} to give F1 of; it is one of {', '.join(known)}"
            )
        return float(self.scores.f1[self.labels.index(positive)])

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that are there or were predicted; 0 where there are none."""
        scores = self.scores
        present = scores.f1[(scores.support + scores.predicted) > 0]
        return float(np.mean(present)) if present.size else 0.0

    @property
    def weighted_f1(self) -> float:
        """The mean F1 of the classes, each as often as it is there."""
        scores = self.scores
        if not scores.support.any():
            return 0.0
        return float(np.average(scores.f1, weights=scores.support))

    @property
    def matthews(self) -> float:
        """Matthews' correlation in Gorodkin's form for any number of classes: CoLA's.

        From -1 to 1; 0 where all examples are of one class or were taken for one.
        """
        gold = self.counts.sum(1).astype(np.float64)
        predicted = self.counts.sum(0).astype(np.float64)
        total = gold.sum()
        both = float(self.counts.trace()) * total - gold @ predicted
        spread = (total**2 - predicted @ predicted) * (total**2 - gold @ gold)
        return float(both / math.sqrt(spread)) if spread else 0.0

    def as_text(self) -> str:
        """The scores of each class, their averages, and the matrix (if it is large: its errors)."""
        total = int(self.counts.sum())
        summary = [
            ["examples", str(total)],
            ["accuracy", f"{self.accuracy:.4f}"],
            ["macro f1", f"{self.macro_f1:.4f}"],
            ["weighted f1", f"{self.weighted_f1:.4f}"],
            ["matthews", f"{self.matthews:.4f}"],
        ]
        few = len(self.labels) <= MATRIX_CLASSES
        parts = (
            self.scores.report(self.labels),
            aligned(summary),
            self._matrix() if few else self._errors(),
        )
        return "\n\n".join("\n".join(lines) for lines in parts)

    def draw(self, path: Path) -> None:
        """Writes a PNG picture: each row coloured by its shares, with counts in the cells.

        Raises:
            UserError: the file cannot be written.
        """
        figure = self._figure()
        content = io.BytesIO()
        with warnings.catch_warnings():
            # Scripts that matplotlib's font has not: the numbers tell the classes.
            warnings.filterwarnings("ignore", message="Glyph")
            figure.savefig(content, format="png", dpi=100)
        write_atomically(path, content.getvalue())

    def _matrix(self) -> list[str]:
        heading = ["gold \\ predicted", *(str(n) for n in range(1, len(self.labels) + 1))]
        rows = [
            [name, *map(str, row)]
            for name, row in zip(numbered(self.labels), self.counts, strict=True)
        ]
        return aligned([heading, *rows])

    def _errors(self) -> list[str]:
        errors = self.counts.copy()
        np.fill_diagonal(errors, 0)
        names = numbered(self.labels)
        rows = [["gold", "predicted", "count"]]
        for cell in _largest(errors, MOST_ERRORS):
            gold, predicted = divmod(cell, len(names))
            rows.append([names[gold], names[predicted], str(errors[gold, predicted])])
        found = np.count_nonzero(errors)
        return [f"the {len(rows) - 1} largest of {found} kinds of errors", *aligned(rows, left=2)]

    def _figure(self) -> Any:
        from matplotlib.figure import Figure

        classes = len(self.labels)
        cell = _cell_size(classes)
        side = cell * classes
        figure = Figure(figsize=(side + 3.5, side + 2.2), layout="constrained")
        axes = figure.subplots()
        support = self.counts.sum(1, keepdims=True)
        shares = self.counts / np.maximum(support, 1)  # CC
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for gold, predicted in np.argwhere(self.counts >= _least_drawn(self.counts)):
            count = str(self.counts[gold, predicted])
            axes.text(
                predicted,
                gold,
                count,
                ha="center",
                va="center",
                fontsize=min(10, 28 * cell, 88 * cell / len(count)),
                color="white" if shares[gold, predicted] > 0.5 else "black",
            )
        names = numbered(self.labels)
        # A dollar in a name begins no formula.
        style: dict[str, Any] = {"fontsize": min(10, 28 * cell), "parse_math": False}
        axes.set_yticks(range(classes), names, **style)
        axes.set_xticks(range(classes), names, rotation=90, **style)
        axes.set_ylabel("gold")
        axes.set_xlabel("predicted")
        axes.set_title(f"{int(support.sum())} examples, accuracy {self.accuracy:.4f}")
        return figure


def _largest(counts: np.ndarray, most: int) -> list[int]:
    """Flat indices of the largest counts, the largest first, none that is 0."""
    flat = counts.ravel()
    order = np.argsort(-flat, kind="stable")[:most]
    return [int(index) for index in order if flat[index]]


def _least_drawn(counts: np.ndarray) -> int:
    """The least count that is drawn as a number, above 0: at most `MOST_NUMBERS` are."""
    ordered = np.sort(counts, axis=None)[::-1]
    # Of cells with the same count all or none get their number.
    return max(1, int(ordered[MOST_NUMBERS]) + 1) if ordered.size > MOST_NUMBERS else 1


def _cell_size(classes: int) -> float:
    """Inches of a cell, fewer the more there are: even 1,000 classes make a picture that opens."""
    if classes <= 12:
        return 0.6
    return 0.36 if classes <= 60 else min(0.24, 60 / classes)
