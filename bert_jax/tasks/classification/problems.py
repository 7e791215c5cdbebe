"""The three problem types of a classifier: one class of several, any of several, or a number.

Each defines its labels as numbers, its loss, metrics and reports.
"""

import abc
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.checkpoints.config_file import problem_type
from bert_jax.data.examples import Example, LabelVector
from bert_jax.data.readers.columns import TextOptions
from bert_jax.errors import UserError, listed, require_one_of
from bert_jax.files import save_figure
from bert_jax.metrics.classification import ConfusionMatrix, LabelSets
from bert_jax.metrics.similarity import mean_squared_error, pearson, spearman
from bert_jax.tasks.base.labels import class_numbers, drop_labels, label_numbers
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.base.task import Content


@dataclasses.dataclass(frozen=True)
class Problem(abc.ABC):
    """A problem type with its labels.

    Attributes:
        problem_type: name of the problem type in Hugging Face's `config.json`.
        best_metric: metric that chooses the best checkpoint.
        score_kind: meaning of the outputs, see `Distillable`.
        labels: names of the C classes.
    """

    problem_type: ClassVar[str]
    best_metric: ClassVar[str]
    score_kind: ClassVar[str]

    labels: tuple[str, ...]

    @property
    def outputs(self) -> int:
        """The number of outputs of the classifier, C."""
        return len(self.labels)

    @property
    def positive_class(self) -> str:
        """The class for the metric `f1`; "": F1 is the mean over classes."""
        return ""

    @abc.abstractmethod
    def targets(self, examples: Sequence[Example[Any]]) -> np.ndarray:
        """Labels as numbers, [n] or [n, C].

        Raises:
            UserError: a label is unknown; the message names its location.
        """

    @abc.abstractmethod
    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """float32 [B, C] and targets → the loss of each example, float32 [B]."""

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array | None:
        """Whether each prediction is correct, bool [B]; None: not defined for the problem type."""
        return None

    @abc.abstractmethod
    def decide(self, logits: np.ndarray) -> np.ndarray:
        """What n predictions, float32 [n, C], say: class numbers [n], bool [n, C] or values [n]."""

    @abc.abstractmethod
    def metrics(self, decisions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Metrics of n decisions, without the loss."""

    @abc.abstractmethod
    def majority(self, targets: np.ndarray) -> np.ndarray:
        """The best constant prediction, [C]: the baseline."""

    @abc.abstractmethod
    def reports(self, decisions: np.ndarray, targets: np.ndarray) -> Mapping[str, Content]:
        """Text and pictures for people by the ending of the file, such as "report.txt"."""


@dataclasses.dataclass(frozen=True)
class SingleLabel(Problem):
    """Each text has one class."""

    problem_type = "single_label_classification"
    best_metric = "accuracy"
    score_kind = "classes"

    @property
    def positive_class(self) -> str:
        """The second of two classes."""
        return self.labels[1] if len(self.labels) == 2 else ""

    def targets(self, examples: Sequence[Example[Any]]) -> np.ndarray:
        """Class numbers, int32 [n]."""
        return class_numbers(self.labels, examples)

    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Cross-entropy."""
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets)

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        return logits.argmax(axis=-1) == targets

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return logits.argmax(axis=-1)

    def metrics(self, decisions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """Accuracy, F1 (of class 1 if there are two, else the mean), Matthews' correlation."""
        matrix = ConfusionMatrix(self.labels, targets, decisions)
        positive = self.positive_class
        f1 = {"f1": matrix.f1(positive)} if positive else {"macro_f1": matrix.macro_f1}
        return {"accuracy": matrix.accuracy, **f1, "matthews_correlation": matrix.matthews}

    def majority(self, targets: np.ndarray) -> np.ndarray:
        return np.bincount(targets, minlength=len(self.labels)).astype(np.float32)

    def reports(self, decisions: np.ndarray, targets: np.ndarray) -> Mapping[str, Content]:
        """The confusion matrix as text and as a picture."""
        matrix = ConfusionMatrix(self.labels, targets, decisions)
        return {"report.txt": matrix.as_text(), "confusion.png": matrix.draw}


@dataclasses.dataclass(frozen=True)
class MultiLabel(Problem):
    """Each text has any number of the classes, or none."""

    problem_type = "multi_label_classification"
    best_metric = "micro_f1"
    score_kind = "labels"

    def targets(self, examples: Sequence[Example[Any]]) -> np.ndarray:
        """float32 [n, C], 1 where a class applies.

        Raises:
            UserError: a label is unknown, or a vector has not the C classes.
        """
        number = label_numbers(self.labels)
        targets = np.zeros((len(examples), len(self.labels)), np.float32)
        for row, example in enumerate(examples):
            labels = example.label if isinstance(example.label, tuple) else (str(example.label),)
            if isinstance(labels, LabelVector) and set(labels.names) != set(self.labels):
                raise UserError(
                    f"{example.location}: the row has a 0 or 1 for the {len(labels.names)} labels "
                    f"{listed(labels.names)}, but there are {len(self.labels)}: "
                    f"{listed(self.labels)}; give every row as many"
                )
            for label in labels:
                targets[row, number(label, example.location)] = 1
        return targets

    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Binary cross-entropy, the mean over the classes."""
        return optax.sigmoid_binary_cross_entropy(logits, targets).mean(axis=-1)

    def correct(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """Whether all classes of a text are predicted correctly."""
        return ((logits > 0) == (targets > 0)).all(axis=-1)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return logits > 0

    def metrics(self, decisions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        """F1 of all decisions, of classes, of texts; accuracy: texts with all classes correct."""
        sets = LabelSets(self.labels, targets > 0, decisions)
        return {
            "micro_f1": sets.micro_f1,
            "macro_f1": sets.macro_f1,
            "samples_f1": sets.samples_f1,
            "accuracy": sets.subset_accuracy,
        }

    def majority(self, targets: np.ndarray) -> np.ndarray:
        """The classes that more than half of the texts have."""
        return (targets.mean(axis=0) - 0.5).astype(np.float32)

    def reports(self, decisions: np.ndarray, targets: np.ndarray) -> Mapping[str, Content]:
        """Precision, recall and F1 of each class."""
        return {"report.txt": LabelSets(self.labels, targets > 0, decisions).as_text()}


@dataclasses.dataclass(frozen=True)
class Regression(Problem):
    """Each text has a number, as in STS-B."""

    labels: tuple[str, ...] = ()

    problem_type = "regression"
    best_metric = "pearson"
    score_kind = "values"

    @property
    def outputs(self) -> int:
        return 1

    def targets(self, examples: Sequence[Example[Any]]) -> np.ndarray:
        """The numbers, float32 [n]."""
        for example in examples:
            if not isinstance(example.label, float):
                problem = f"{example.location}: the label {example.label!r} is not a number"
                raise UserError(f"{problem}; fix the line, or train a classifier of classes")
        return np.array([example.label for example in examples], np.float32)

    def losses(self, logits: jax.Array, targets: jax.Array) -> jax.Array:
        """The squared difference."""
        return jnp.square(logits[..., 0] - targets)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return logits[:, 0]

    def metrics(self, decisions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
        scores = (pearson, spearman, mean_squared_error)
        return {score.__name__: score(targets, decisions) for score in scores}

    def majority(self, targets: np.ndarray) -> np.ndarray:
        """The mean of the numbers."""
        return targets.mean(keepdims=True)

    def reports(self, decisions: np.ndarray, targets: np.ndarray) -> Mapping[str, Content]:
        """The metrics as text, and a plot of expected against predicted values."""
        metrics = self.metrics(decisions, targets)
        lines = (f"{name:20} {value:.4f}\n" for name, value in metrics.items())
        draw = functools.partial(_draw_values, expected=targets, predicted=decisions)
        return {"report.txt": "".join(lines), "values.png": draw}


def _draw_values(path: Path, expected: np.ndarray, predicted: np.ndarray) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    axes.scatter(expected, predicted, s=8, alpha=0.5)
    axes.axline((float(expected.mean()),) * 2, slope=1, linestyle="--", color="gray")
    axes.set_xlabel("expected")
    axes.set_ylabel("predicted")
    axes.grid(alpha=0.3)
    save_figure(path, figure)


PROBLEMS: dict[str, type[Problem]] = {
    problem.problem_type: problem for problem in (SingleLabel, MultiLabel, Regression)
}


def infer_problem_type(name: str, options: TextOptions, model_init: ModelInit) -> type[Problem]:
    """The problem type of a config: by name, else of the model or of the data format.

    Args:
        name: one of Hugging Face's problem types, or "".
        options: options of the reader.
        model_init: the initial model; a finished one keeps its problem type.

    Raises:
        OptionError: the problem type is unknown.
    """
    if name:
        require_one_of("data.problem_type", name, PROBLEMS)
        return PROBLEMS[name]
    if model_init.is_finished and model_init.description:
        return PROBLEMS[problem_type(model_init.description)]
    if options.layout and options.layout.regression:
        return Regression
    return MultiLabel if options.label_separator or options.label_columns else SingleLabel


def has_lists(examples: Iterable[Example[Any]]) -> bool:
    """Whether labels are lists."""
    return any(isinstance(example.label, tuple) for example in examples)


def labels_of(examples: Iterable[Example[Any]]) -> dict[str, str]:
    """All labels, each with the location of its first example."""
    locations: dict[str, str] = {}
    for example in examples:
        labels = example.label if isinstance(example.label, tuple) else (example.label,)
        for label in labels.names if isinstance(labels, LabelVector) else labels:
            if label is not None:
                locations.setdefault(str(label), example.location)
    return locations


def vector_names(examples: Iterable[Example[Any]]) -> tuple[str, ...]:
    """The classes of the first label that is a vector, in their order; (): none is."""
    labels = (example.label for example in examples)
    return next((label.names for label in labels if isinstance(label, LabelVector)), ())


def drop_unknown_labels(eval_set: EvalSet[Any], problem: Problem) -> EvalSet[Any]:
    """A set to be predicted; its labels are dropped if the model does not know all of them."""
    if all(example.label is None for example in eval_set.examples):
        return eval_set
    try:
        # An empty cell means that no label applies; a whole column of them, that the file has no
        # labels.
        if all(example.label == () for example in eval_set.examples):
            raise UserError(f"{eval_set.source}: no text has a label")
        problem.targets(eval_set.examples)
    except UserError as error:
        return drop_labels(eval_set, error)
    return eval_set
