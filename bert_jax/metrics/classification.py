"""Scores of predicted classes: accuracy, precision, recall, F1, Matthews, and the confusion matrix.

The numbers are scikit-learn's, and 0 where a score is not defined: no such class, no examples. The
reports number the classes, align names of any script, and of many classes list the
largest errors.
"""

import dataclasses
import functools
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import save_figure
from bert_jax.metrics.tables import aligned, shorten

# The matrix is printed up to so many classes, about a terminal's width; beyond, its largest errors.
MATRIX_CLASSES = 20
MOST_ERRORS = 40
# Only so many cells of a picture get their number, the largest ones: drawing text takes long.
MOST_NUMBERS = 4_000


class ClassScores(NamedTuple):
    """Scores of each class, float64 [C]; support, the number of gold examples, is int64 [C]."""

    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    support: np.ndarray

    def report(self, labels: tuple[str, ...]) -> list[str]:
        """A heading, and a line for each class, numbered from 1."""
        rows = [["class", "precision", "recall", "f1", "support"]]
        for name, *scores, support in zip(_numbered(labels), *self, strict=True):
            rows.append([name, *(f"{score:.4f}" for score in scores), str(support)])
        return aligned(rows)


@dataclasses.dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Gold and predicted classes of n examples, and their scores.

    Attributes:
        labels: names of the C classes.
        gold: integers [n] in [0, C).
        predicted: integers [n] in [0, C).

    Raises:
        ValueError: the shapes differ, or a number is that of no class.
    """

    labels: tuple[str, ...]
    gold: np.ndarray
    predicted: np.ndarray

    def __post_init__(self) -> None:
        gold, predicted = np.asarray(self.gold), np.asarray(self.predicted)
        if gold.ndim != 1 or gold.shape != predicted.shape:
            raise ValueError(f"classes of shapes {gold.shape} and {predicted.shape}, not both [n]")
        classes = len(self.labels)
        for numbers in (gold, predicted):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < classes:
                raise ValueError(f"class numbers must lie in 0 … {classes - 1}")

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """Examples by gold and predicted class, int64 [C, C]."""
        classes = len(self.labels)
        if not len(self.gold):
            return np.zeros((classes, classes), np.int64)
        counts: np.ndarray = self._score("confusion_matrix", labels=range(classes))
        return counts

    @functools.cached_property
    def scores(self) -> ClassScores:
        """Precision, recall and F1 of each class."""
        return _class_scores(self.gold, self.predicted, len(self.labels))

    @property
    def accuracy(self) -> float:
        """The share of examples on the diagonal."""
        return float(self._score("accuracy_score"))

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
        """The mean F1 of the classes that are gold or predicted for some example."""
        return float(self._score("f1_score", average="macro", zero_division=0))

    @property
    def weighted_f1(self) -> float:
        """The mean F1 of the classes, weighted by support."""
        return float(self._score("f1_score", average="weighted", zero_division=0))

    @property
    def matthews(self) -> float:
        """Matthews' correlation in Gorodkin's form for any number of classes: CoLA's.

        From -1 to 1; 0 where all examples have one gold class or one predicted class.
        """
        return float(self._score("matthews_corrcoef"))

    def _score(self, name: str, **options: Any) -> Any:
        return _score(name, self.gold, self.predicted, **options)

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
        with warnings.catch_warnings():
            # Scripts that the font does not have: the numbers name the classes.
            warnings.filterwarnings("ignore", message="Glyph")
            save_figure(path, figure, dpi=100)

    def _matrix(self) -> list[str]:
        heading = ["gold \\ predicted", *(str(n) for n in range(1, len(self.labels) + 1))]
        rows = [
            [name, *map(str, row)]
            for name, row in zip(_numbered(self.labels), self.counts, strict=True)
        ]
        return aligned([heading, *rows])

    def _errors(self) -> list[str]:
        errors = self.counts.copy()
        np.fill_diagonal(errors, 0)
        names = _numbered(self.labels)
        rows = [["gold", "predicted", "count"]]
        for cell in _largest(errors, MOST_ERRORS):
            gold, predicted = divmod(cell, len(names))
            rows.append([names[gold], names[predicted], str(errors[gold, predicted])])
        kinds = np.count_nonzero(errors)
        return [f"the {len(rows) - 1} largest of {kinds} kinds of errors", *aligned(rows, left=2)]

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
        names = _numbered(self.labels)
        # A dollar in a name begins no formula.
        style: dict[str, Any] = {"fontsize": min(10, 28 * cell), "parse_math": False}
        axes.set_yticks(range(classes), names, **style)
        axes.set_xticks(range(classes), names, rotation=90, **style)
        axes.set_ylabel("gold")
        axes.set_xlabel("predicted")
        axes.set_title(f"{int(support.sum())} examples, accuracy {self.accuracy:.4f}")
        return figure


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSets:
    """Gold and predicted labels of n examples that may have several or none, and their scores.

    Attributes:
        labels: names of the C labels.
        gold: bool [n, C].
        predicted: bool [n, C].

    Raises:
        ValueError: the shapes differ.
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

    @functools.cached_property
    def scores(self) -> ClassScores:
        """Precision, recall and F1 of each label."""
        return _class_scores(_indicators(self.gold), _indicators(self.predicted), len(self.labels))

    @property
    def subset_accuracy(self) -> float:
        """The share of examples with exactly the gold labels."""
        indicators = _indicators(self.gold), _indicators(self.predicted)
        return float(_score("accuracy_score", *indicators))

    @property
    def micro_f1(self) -> float:
        """F1 of all labels of all examples together."""
        return self._f1("micro")

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the labels."""
        return self._f1("macro")

    @property
    def samples_f1(self) -> float:
        """The mean over examples of F1 of their labels; 0 for one without gold and predicted."""
        return self._f1("samples")

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

    def _f1(self, average: str) -> float:
        indicators = _indicators(self.gold), _indicators(self.predicted)
        labels = range(len(self.labels))
        return float(
            _score("f1_score", *indicators, labels=labels, average=average, zero_division=0)
        )


def _score(name: str, gold: np.ndarray, predicted: np.ndarray, **options: Any) -> Any:
    """A metric of scikit-learn; 0 without examples, which it refuses."""
    if not len(gold):
        return 0
    import sklearn.metrics  # takes half a second

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A single label was found")
        return getattr(sklearn.metrics, name)(gold, predicted, **options)


def _class_scores(gold: np.ndarray, predicted: np.ndarray, classes: int) -> ClassScores:
    """Of class numbers [n] or of `_indicators`."""
    if not len(gold):
        nothing = np.zeros(classes)
        return ClassScores(nothing, nothing, nothing, nothing.astype(np.int64))
    name = "precision_recall_fscore_support"
    return ClassScores(*_score(name, gold, predicted, labels=range(classes), zero_division=0))


def _indicators(sets: np.ndarray) -> np.ndarray:
    """Bool [n, C] → int64 [n, C + 1], with a label that no example has.

    scikit-learn would take a single column for two exclusive classes.
    """
    return np.pad(sets.astype(np.int64), ((0, 0), (0, 1)))


def _numbered(labels: tuple[str, ...]) -> list[str]:
    """Names of classes, cut to one width, with their numbers from 1, so that they are unique."""
    width = len(str(len(labels)))
    return [f"{number:>{width}} {shorten(label)}" for number, label in enumerate(labels, 1)]


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
