"""The three problem types of a classifier: one class of several, any of several, or a number.

Each defines its labels as numbers, its loss, metrics and reports.
"""

import abc
import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.data.examples import TextExample
from bert_jax.data.readers.texts import TextOptions
from bert_jax.errors import OptionError, UserError
from bert_jax.files import save_figure, write_atomically
from bert_jax.metrics.classification import ConfusionMatrix, LabelSets
from bert_jax.metrics.similarity import mean_squared_error, pearson, spearman
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.base.task import ModelInit
from bert_jax.tasks.classification.predict import problem_type


@dataclasses.dataclass(frozen=True)
class Problem(abc.ABC):
    """A problem type with its labels.

    Attributes:
        problem_type: Hugging Face's name.
        best_metric: chooses the best checkpoint.
        labels: names of the C classes.
    """

    problem_type: ClassVar[str]
    best_metric: ClassVar[str]

    labels: tuple[str, ...]

    @property
    def outputs(self) -> int:
        """The number of outputs of the classifier, C."""
        return len(self.labels)

    @property
    @abc.abstractmethod
    def metric_names(self) -> tuple[str, ...]:
        """The keys of `metrics`."""

    @abc.abstractmethod
    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Labels as numbers, [n] or [n, C].

        Raises:
            UserError: a label is unknown; names its place.
        """

    @abc.abstractmethod
    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """float32 [B, C] and targets → the loss of each example, float32 [B]."""

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array | None:
        """Whether each prediction is correct, bool [B]; None: that is not defined."""
        return None

    @abc.abstractmethod
    def metrics(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Metrics of n predictions, float32 [n, C], without the loss."""

    @abc.abstractmethod
    def majority(self, targets: np.ndarray) -> np.ndarray:
        """The best constant prediction, [C]: the baseline."""

    @abc.abstractmethod
    def report(self, logits: np.ndarray, targets: np.ndarray, stem: Path) -> None:
        """Writes text and pictures for people, as `<stem>.report.txt`."""


@dataclasses.dataclass(frozen=True)
class SingleLabel(Problem):
    """Each text has one class."""

    problem_type = "single_label_classification"
    best_metric = "accuracy"

    @property
    def metric_names(self) -> tuple[str, ...]:
        f1 = "f1" if len(self.labels) == 2 else "macro_f1"
        return "accuracy", f1, "matthews_correlation"

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """int32 [n]."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        return np.array(
            [_known(str(example.label), numbers, example) for example in examples], np.int32
        )

    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Cross-entropy."""
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets)

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
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

    def majority(self, targets: np.ndarray) -> np.ndarray:
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
    metric_names = ("micro_f1", "macro_f1", "samples_f1", "accuracy")

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """float32 [n, C], 1 where a class applies."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        targets = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, example in enumerate(examples):
            labels = example.label if isinstance(example.label, tuple) else (str(example.label),)
            for label in labels:
                targets[row, _known(label, numbers, example)] = 1
        return targets

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

    def majority(self, targets: np.ndarray) -> np.ndarray:
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
    """Each text has a number, as in STS-B."""

    labels: tuple[str, ...] = ()

    problem_type = "regression"
    best_metric = "pearson"
    metric_names = ("pearson", "spearman", "mean_squared_error")

    @property
    def outputs(self) -> int:
        return 1

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """float32 [n]."""
        for example in examples:
            if not isinstance(example.label, float):
                problem = f"{example.place}: the label {example.label!r} is not a number"
                raise UserError(f"{problem}; fix the line, or train a classifier of classes")
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

    def majority(self, targets: np.ndarray) -> np.ndarray:
        """The mean."""
        return targets.mean(keepdims=True)

    def report(self, logits: np.ndarray, targets: np.ndarray, stem: Path) -> None:
        """The metrics as text, and a picture of expected and predicted values."""
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
        save_figure(stem.with_suffix(".values.png"), figure)


def _known(label: str, numbers: dict[str, int], example: TextExample) -> int:
    if label not in numbers:
        raise OptionError(
            "labels",
            None,
            "fix the line, or name the labels with {labels}",
            problem=f"{example.place}: label {label!r} is none of {', '.join(numbers)}",
        )
    return numbers[label]


PROBLEMS: dict[str, type[Problem]] = {
    problem.problem_type: problem for problem in (SingleLabel, MultiLabel, Regression)
}


def infer_problem_type(name: str, options: TextOptions, model_init: ModelInit) -> type[Problem]:
    """The problem type of a config: the named one, else that of the model or of the data's format.

    Args:
        name: one of Hugging Face's problem types, or "".
        options: of the reader.
        model_init: of the model; a finished one keeps its problem type.

    Raises:
        OptionError: there is no such type.
    """
    if name:
        if name not in PROBLEMS:
            raise OptionError("problem_type", name, f"known are {', '.join(PROBLEMS)}")
        return PROBLEMS[name]
    if model_init.is_finished and model_init.description:
        return PROBLEMS[problem_type(model_init.description)]
    if options.layout and options.layout.regression:
        return Regression
    return MultiLabel if options.label_separator else SingleLabel


def has_lists(examples: Iterable[TextExample]) -> bool:
    """Whether labels are lists, as in JSON."""
    return any(isinstance(example.label, tuple) for example in examples)


def labels_of(examples: Iterable[TextExample]) -> dict[str, str]:
    """All labels, each with the place of its first example."""
    places: dict[str, str] = {}
    for example in examples:
        labels = example.label if isinstance(example.label, tuple) else (example.label,)
        for label in labels:
            if label is not None:
                places.setdefault(str(label), example.place)
    return places


def drop_unknown_labels(eval_set: EvalSet[TextExample], problem: Problem) -> EvalSet[TextExample]:
    """A set to be predicted, without its labels where the model does not know them all."""
    if all(example.label is None for example in eval_set.examples):
        return eval_set
    try:
        # An empty cell means that none of several labels applies; a whole column of them, that
        # the file has no labels.
        if all(example.label == () for example in eval_set.examples):
            raise UserError(f"{eval_set.source}: no text has a label")
        problem.targets(eval_set.examples)
    except UserError as error:
        if is_main_host():
            print(f"{eval_set.source}: skipping metrics: {error}", file=sys.stderr)
        unlabelled = [dataclasses.replace(example, label=None) for example in eval_set.examples]
        return dataclasses.replace(eval_set, examples=unlabelled)
    return eval_set
