"""Scores of predicted classes: accuracy, precision, recall, F1, Matthews, and the confusion matrix.

The numbers are scikit-learn's, and 0 if a score is not defined, as for a class without examples.
The reports align names of any script, and list only the largest errors of many classes. Time and
memory grow with classes and examples, not with the square of the classes.
"""

import dataclasses
import functools
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import can_draw, save_figure
from bert_jax.metrics.tables import NAME_WIDTH, aligned, shorten

# The matrix is printed up to this many classes, with names of this width above its columns; else
# its largest errors.
MATRIX_CLASSES, HEADING_WIDTH = 20, 10
MOST_ERRORS = 40
# A picture shows at most this number of classes, the most frequent: more cannot be read, and
# drawing takes minutes and gigabytes.
DRAWN_CLASSES = 200
# Only this many cells of a picture are labelled, the largest ones: drawing text takes long.
MOST_NUMBERS = 4_000


class ClassScores(NamedTuple):
    """Scores of each class, float64 [C]; support, the number of gold examples, is int64 [C]."""

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray

    def as_text(
        self, labels: tuple[str, ...], examples: int, averages: dict[str, float], unit: str
    ) -> str:
        """One line per class, then the number of examples in their unit, and the averages."""
        rows = [["class", "precision", "recall", "f1", "support"]]
        for name, *scores, support in zip(_names(labels), *self, strict=True):
            rows.append([name, *(f"{score:.4f}" for score in scores), str(support)])
        summary = [[name, f"{value:.4f}"] for name, value in averages.items()]
        blocks = aligned(rows), aligned([[unit, str(examples)], *summary])
        return "\n\n".join("\n".join(lines) for lines in blocks)


@dataclasses.dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Gold and predicted classes of n examples, and their scores.

    Attributes:
        labels: names of the C classes.
        gold: integers [n] in [0, C).
        predicted: integers [n] in [0, C).
        unit: what has a class, in reports.
    """

    labels: tuple[str, ...]
    gold: np.ndarray
    predicted: np.ndarray
    unit: str = "examples"

    def counts(self, classes: np.ndarray) -> np.ndarray:
        """Number of examples by gold and predicted class.

        Args:
            classes: distinct numbers of some of the C classes, int [n].

        Returns:
            int64 [n, n].
        """
        indices = np.full(len(self.labels), -1)
        indices[classes] = np.arange(len(classes))
        gold, predicted = indices[self.gold], indices[self.predicted]
        cells = (gold * len(classes) + predicted)[(gold >= 0) & (predicted >= 0)]
        shape = len(classes), len(classes)
        return np.bincount(cells, minlength=len(classes) ** 2).reshape(shape)

    @functools.cached_property
    def scores(self) -> ClassScores:
        """Precision, recall and F1 of each class."""
        return _class_scores(self.gold, self.predicted, len(self.labels))

    @property
    def accuracy(self) -> float:
        """The fraction of examples on the diagonal."""
        return float(np.mean(self.gold == self.predicted))

    def f1(self, positive: str) -> float:
        """F1 of one class, which is the second one for MRPC and QQP.

        Raises:
            UserError: the class does not exist.
        """
        if positive not in self.labels:
            known = [*map(repr, self.labels[:10]), *("…" for _ in self.labels[10:11])]
            raise UserError(
                f"there is no class {positive!r} to give F1 of; it is one of {', '.join(known)}"
            )
        return float(self.scores.f1[self.labels.index(positive)])

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that are gold or predicted for some example."""
        return _f1(self.gold, self.predicted, "macro")

    @property
    def weighted_f1(self) -> float:
        """The mean F1 of the classes, weighted by support."""
        return _f1(self.gold, self.predicted, "weighted")

    @property
    def matthews(self) -> float:
        """Matthews' correlation in Gorodkin's form for any number of classes (CoLA's metric).

        From -1 to 1; 0 if all examples have one gold class or one predicted class.
        """
        classes = len(self.labels)
        # The formula of scikit-learn, which makes a matrix of all classes.
        gold = np.bincount(self.gold, minlength=classes).astype(np.float64)
        predicted = np.bincount(self.predicted, minlength=classes).astype(np.float64)
        correct, total = float(np.count_nonzero(self.gold == self.predicted)), float(len(self.gold))
        covariance = correct * total - gold @ predicted
        variances = (total**2 - gold @ gold) * (total**2 - predicted @ predicted)
        return float(covariance / np.sqrt(variances)) if variances else 0.0

    def as_text(self) -> str:
        """The scores of each class, their averages, and the matrix (or its largest errors)."""
        averages = {
            "accuracy": self.accuracy,
            "macro f1": self.macro_f1,
            "weighted f1": self.weighted_f1,
            "matthews": self.matthews,
        }
        few = len(self.labels) <= MATRIX_CLASSES
        counts = "\n".join(self._matrix() if few else self._errors())
        scores = self.scores.as_text(self.labels, len(self.gold), averages, self.unit)
        return f"{scores}\n\n{counts}"

    def draw(self, path: Path) -> None:
        """Writes a PNG picture: each row coloured by its fractions, with counts in the cells.

        A class whose name has a character that no installed font has is shown by its line in the
        table of `as_text`, from 1.

        Raises:
            UserError: the file cannot be written.
        """
        save_figure(path, self._figure(), dpi=100, names=self.labels)

    def _matrix(self) -> list[str]:
        counts = self.counts(np.arange(len(self.labels)))
        heading = ["gold \\ predicted", *_names(self.labels, HEADING_WIDTH)]
        rows = [
            [name, *map(str, row)] for name, row in zip(_names(self.labels), counts, strict=True)
        ]
        return aligned([heading, *rows])

    def _errors(self) -> list[str]:
        names = _names(self.labels)
        cells = self.gold.astype(np.int64) * len(names) + self.predicted
        kinds, counts = np.unique(cells[self.gold != self.predicted], return_counts=True)
        rows = [["gold", "predicted", "count"]]
        for kind in np.argsort(-counts, kind="stable")[:MOST_ERRORS]:
            gold, predicted = divmod(int(kinds[kind]), len(names))
            rows.append([names[gold], names[predicted], str(counts[kind])])
        heading = f"the {len(rows) - 1} largest of {len(kinds)} kinds of errors"
        return [heading, *aligned(rows, left=2)]

    def _figure(self) -> Any:
        from matplotlib.figure import Figure

        support = np.bincount(self.gold, minlength=len(self.labels))
        drawn = np.sort(np.argsort(-support, kind="stable")[:DRAWN_CLASSES])
        counts = self.counts(drawn)
        classes = len(drawn)
        cell = 0.6 if classes <= 12 else 0.36 if classes <= 60 else 0.24  # inches
        side = cell * classes
        figure = Figure(figsize=(side + 3.5, side + 2.2), layout="constrained")
        axes = figure.subplots()
        shares = counts / np.maximum(support[drawn, None], 1)  # [drawn, drawn]
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for gold, predicted in np.argwhere(counts >= _least_drawn(counts)):
            count = str(counts[gold, predicted])
            axes.text(
                predicted,
                gold,
                count,
                ha="center",
                va="center",
                fontsize=min(10, 28 * cell, 88 * cell / len(count)),
                color="white" if shares[gold, predicted] > 0.5 else "black",
            )
        all_names = _names(self.labels)
        names = [
            all_names[number] if can_draw(self.labels[number]) else f"line {number + 1}"
            for number in drawn
        ]
        # A dollar sign in a name does not start a formula.
        style: dict[str, Any] = {"fontsize": min(10, 28 * cell), "parse_math": False}
        axes.set_yticks(range(classes), names, **style)
        axes.set_xticks(range(classes), names, rotation=90, **style)
        axes.set_ylabel("gold (colours: shares of each row)")
        axes.set_xlabel("predicted")
        title = f"{len(self.gold)} {self.unit}, accuracy {self.accuracy:.4f}"
        if classes < len(self.labels):
            title += f"; the {classes} most frequent of {len(self.labels)} classes"
        axes.set_title(title)
        return figure


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSets:
    """Gold and predicted labels of n examples that may have several or none, and their scores.

    Attributes:
        labels: names of the C labels.
        gold: bool [n, C].
        predicted: bool [n, C].
    """

    labels: tuple[str, ...]
    gold: np.ndarray
    predicted: np.ndarray

    @functools.cached_property
    def _indicators(self) -> tuple[np.ndarray, np.ndarray]:
        """Gold and predicted labels, int64 [n, C + 1], with an extra label that no example has.

        scikit-learn would treat a single column as two exclusive classes.
        """
        gold, predicted = (
            np.pad(sets.astype(np.int64), ((0, 0), (0, 1))) for sets in (self.gold, self.predicted)
        )
        return gold, predicted

    @functools.cached_property
    def scores(self) -> ClassScores:
        """Precision, recall and F1 of each label."""
        return _class_scores(*self._indicators, len(self.labels))

    @property
    def subset_accuracy(self) -> float:
        """The fraction of examples with exactly the gold labels."""
        return float(np.mean((self.gold == self.predicted).all(axis=1)))

    @property
    def micro_f1(self) -> float:
        """F1 of all labels of all examples together."""
        return _f1(*self._indicators, "micro", range(len(self.labels)))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels."""
        return _f1(*self._indicators, "macro", range(len(self.labels)))

    @property
    def samples_f1(self) -> float:
        """The mean over examples of F1 of their labels; 0 if gold and predicted sets are empty."""
        return _f1(*self._indicators, "samples", range(len(self.labels)))

    def as_text(self) -> str:
        """The scores of each label, and their averages."""
        averages = {
            "subset accuracy": self.subset_accuracy,
            "micro f1": self.micro_f1,
            "macro f1": self.macro_f1,
            "samples f1": self.samples_f1,
        }
        return self.scores.as_text(self.labels, len(self.gold), averages, "examples")


def _f1(
    gold: np.ndarray, predicted: np.ndarray, average: str, classes: range | None = None
) -> float:
    """F1 from class numbers [n], or from indicators [n, C]; None: all classes that occur."""
    from sklearn.metrics import f1_score  # takes half a second

    score = f1_score(gold, predicted, labels=classes, average=average, zero_division=0)
    return float(score)


def _class_scores(gold: np.ndarray, predicted: np.ndarray, classes: int) -> ClassScores:
    """The scores from class numbers [n] or from indicators [n, C]."""
    from sklearn.metrics import precision_recall_fscore_support

    scores = precision_recall_fscore_support(
        gold, predicted, labels=range(classes), zero_division=0
    )
    return ClassScores(*scores)


def _names(labels: tuple[str, ...], width: int = NAME_WIDTH) -> list[str]:
    """Names of classes, cut to one width; those that are then the same have their lines, from 1."""
    names = [shorten(label, width) for label in labels]
    count = Counter(names)
    return [
        name if count[name] == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)
    ]


def _least_drawn(counts: np.ndarray) -> int:
    """The lowest count above 0 that is drawn as a number: at most `MOST_NUMBERS` are."""
    ordered = np.sort(counts, axis=None)[::-1]
    # Cells with the same count are all labelled or none.
    return max(1, int(ordered[MOST_NUMBERS]) + 1) if ordered.size > MOST_NUMBERS else 1
