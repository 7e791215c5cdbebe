"""Evaluation: what a task names to evaluate its model, and the result."""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.metrics.baselines import shortfall
from bert_jax.tasks.base.predictor import Model, Predictor

Item = TypeVar("Item")
Prediction = TypeVar("Prediction")


@dataclasses.dataclass(frozen=True)
class EvalResult:
    """The result of an evaluation.

    Attributes:
        metrics: validation metrics; with several sets, each with the set's name as a prefix.
        test_metrics: metrics of the test sets that have labels, as `test_<metric>`.
        description: description of the model, with values that were tuned on the validation
            examples, such as a threshold.
        predictions: the predictions for the examples of each set, by its name.
    """

    metrics: dict[str, float]
    description: ModelDescription
    test_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    predictions: Mapping[str, list[Any]] = dataclasses.field(default_factory=dict)


class Predict(Protocol):
    """Predicts all examples, see `inference.evaluation`."""

    def __call__(
        self, predictor: Predictor[Item, Prediction], examples: Iterable[Item], name: str
    ) -> list[Prediction]:
        """Takes the predictor, the examples, and a name under which outputs are kept."""


class Evaluator(abc.ABC):
    """How a task's model is evaluated; it has no state after construction.

    Attributes:
        best_metric: name of the metric that chooses the best checkpoint, and whether the higher
            value is the better one.
    """

    best_metric: tuple[str, bool]

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """Raises UserError where the data cannot be evaluated as the config requires."""

    @abc.abstractmethod
    def evaluate(self, model: Model, predict: Predict, directory: Path | None) -> EvalResult:
        """Evaluates a model; metrics are the same for any mesh up to rounding.

        Args:
            model: the model of the task.
            predict: runs a predictor.
            directory: directory for predictions and reports, including those of the test sets,
                which are evaluated, too; None: not written.

        Raises:
            UserError: a set has no labels and there is no directory for its predictions.
        """

    @abc.abstractmethod
    def baselines(self) -> dict[str, float]:
        """Validation metrics without a model, as `<metric or part>_<baseline>`."""

    def shortfall(self, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
        """A baseline that the metrics of a model do not beat, in words; "" if they beat all."""
        name = self.best_metric[0]
        return shortfall(self.best_metric, metrics[name], baselines) if name in metrics else ""
