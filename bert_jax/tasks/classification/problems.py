"""The three problems of a classifier: one class of several, any of several, or a number.

Each says what a label is as numbers, what its loss is, what its metrics and reports are.
"""

import abc
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.data.examples import TextExample
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.metrics.classification import ConfusionMatrix, LabelSets
from bert_jax.metrics.similarity import mean_squared_error, pearson, spearman


@dataclasses.dataclass(frozen=True)
class Problem(abc.ABC):
    """What labels mean.

    Attributes:
        labels: names of the C classes.
    """

    labels: tuple[str, ...]

    # Hugging Face's `problem_type`, and the metric that chooses the best checkpoint.
    problem_type = ""
    best_metric = ""

    @property
    def outputs(self) -> int:
        """How many numbers the classifier gives, C."""
        return len(self.labels)

    @abc.abstractmethod
    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Labels as numbers, [n] or [n, C].

        Raises:
            UserError: a label is none of the known ones, with its place.
        """

    @abc.abstractmethod
    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """float32 [B, C] and targets → the loss of each example, float32 [B]."""

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array | None:
        """Whether each example is answered right, bool [B]; None: there is no right and wrong."""
        return None

    @abc.abstractmethod
    def metrics(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Metrics of answers [n, C] to n examples, without the loss."""

    @abc.abstractmethod
    def commonest(self, targets: np.ndarray) -> np.ndarray:
        """One answer [C] for everything, as good as can be: the baseline."""

    @abc.abstractmethod
    def report(self, logits: np.ndarray, targets: np.ndarray, stem: Path) -> None:
        """Writes what a person looks at, as `<stem>.report.txt` and pictures."""


@dataclasses.dataclass(frozen=True)
class SingleLabel(Problem):
    """Each text has one class."""

    problem_type = "single_label_classification"
    best_metric = "accuracy"

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """int32 [n]."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        return np.array([_number(example, numbers) for example in examples], np.int32)

    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Cross-entropy."""
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets)

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Whether the highest score is that of the label."""
        return logits.argmax(axis=-1) == targets

    def metrics(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Accuracy, Matthews' correlation, and F1: of the second of two classes, else the mean."""
        matrix = self._confusion(logits, targets)
        f1 = (
            {"f1": matrix.f1(self.labels[1])}
            if len(self.labels) == 2
            else {"macro_f1": matrix.macro_f1}
        )
        return {
            "accuracy": matrix.accuracy,
            **f1,
            "matthews_correlation": matrix.matthews,
        }

    def commonest(self, targets: np.ndarray) -> np.ndarray:
        """The most frequent class."""
        return np.bincount(targets, minlength=len(self.labels)).astype(np.float32)

    def report(self, logits: np.ndarray, targets: np.ndarray, stem: Path) -> None:
        """The confusion matrix, as text and as a picture."""
        matrix = self._confusion(logits, targets)
        write_atomically(stem.with_suffix(".report.txt"), matrix.as_text().encode())
        matrix.draw(stem.with_suffix(".confusion.png"))

    def _confusion(self, logits: np.ndarray, targets: np.ndarray) -> ConfusionMatrix:
        return ConfusionMatrix(self.labels, targets, logits.argmax(axis=-1))


@dataclasses.dataclass(frozen=True)
class MultiLabel(Problem):
    """Each text has any of the classes, or none."""

    problem_type = "multi_label_classification"
    best_metric = "micro_f1"

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """float32 [n, C], 1 where a class applies."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        found = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, example in enumerate(examples):
            labels = example.label if isinstance(example.label, tuple) else (str(example.label),)
            for label in labels:
                found[row, _known(label, numbers, example)] = 1
        return found

    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Binary cross-entropy, the mean over the classes."""
        return optax.sigmoid_binary_cross_entropy(logits, targets).mean(axis=-1)

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Whether all classes of a text are right."""
        return ((logits > 0) == (targets > 0)).all(axis=-1)

    def metrics(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """F1 over all decisions and over classes; accuracy counts texts with all of them right."""
        sets = self._sets(logits, targets)
        return {
            "micro_f1": sets.micro_f1,
            "macro_f1": sets.macro_f1,
            "samples_f1": sets.samples_f1,
            "accuracy": sets.subset_accuracy,
        }

    def commonest(self, targets: np.ndarray) -> np.ndarray:
        """The classes that most texts have."""
        return (targets.mean(axis=0) - 0.5).astype(np.float32)

    def report(self, logits: np.ndarray, targets: np.ndarray, stem: Path) -> None:
        """Scores of each class."""
        text = self._sets(logits, targets).as_text()
        write_atomically(stem.with_suffix(".report.txt"), text.encode())

    def _sets(self, logits: np.ndarray, targets: np.ndarray) -> LabelSets:
        return LabelSets(self.labels, targets > 0, logits > 0)


@dataclasses.dataclass(frozen=True)
class Regression(Problem):
    """Each text has a number: a regression, as STS-B's."""

    labels: tuple[str, ...] = ()

    problem_type = "regression"
    best_metric = "pearson"

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """float32 [n]."""
        for example in examples:
            if not isinstance(example.label, float):
                raise UserError(f"{example.place}: the label {example.label!r} is no number")
        return np.array([example.label for example in examples], np.float32)

    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """The squared difference."""
        return jnp.square(logits[..., 0] - targets)

    def metrics(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Pearson's and Spearman's correlation, and the mean squared error."""
        predicted = logits[:, 0]
        return {
            "pearson": pearson(targets, predicted),
            "spearman": spearman(targets, predicted),
            "mean_squared_error": mean_squared_error(targets, predicted),
        }

    def commonest(self, targets: np.ndarray) -> np.ndarray:
        """The mean."""
        return targets.mean(keepdims=True)

    def report(self, logits: np.ndarray, targets: np.ndarray, stem: Path) -> None:
        """The metrics as text, and a picture of each value beside the one that was predicted."""
        from matplotlib.figure import Figure

        lines = [f"{name:20} {value:.4f}" for name, value in self.metrics(logits, targets).items()]
        write_atomically(stem.with_suffix(".report.txt"), ("\n".join(lines) + "\n").encode())
        figure = Figure(figsize=(5, 5), layout="constrained")
        axes = figure.subplots()
        axes.scatter(targets, logits[:, 0], s=8, alpha=0.5)
        axes.axline((float(targets.mean()),) * 2, slope=1, linestyle="--", color="gray")
        axes.set_xlabel("expected")
        axes.set_ylabel("predicted")
        axes.grid(alpha=0.3)
        picture = io.BytesIO()
        figure.savefig(picture, dpi=120)
        write_atomically(stem.with_suffix(".values.png"), picture.getvalue())


def _number(example: TextExample, numbers: dict[str, int]) -> int:
    return _known(str(example.label), numbers, example)


def _known(label: str, numbers: dict[str, int], example: TextExample) -> int:
    if label not in numbers:
        raise UserError(
            f"{example.place}: label {label!r} is none of {', '.join(numbers)}; mend the line, or "
            "name the labels with data.labels"
        )
    return numbers[label]
