"""Evaluation of predictions for labelled examples: sets, metrics and files."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import jax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example
from bert_jax.errors import OptionError, UserError
from bert_jax.files import atomic_directory
from bert_jax.metrics import unknown_metric
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.labelled_options import LabelledOptions
from bert_jax.tasks.base.predict_spec import EXPECTED, JSONL, PredictSpec
from bert_jax.tasks.base.predictor import Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.base.task import EvalResult, Evaluator, Predict

Input = TypeVar("Input")
Prediction = TypeVar("Prediction")


@dataclasses.dataclass(frozen=True, eq=False)
class LabelledEvaluator(Evaluator, Generic[Input, Prediction]):
    """Compares labels with predictions; they are the predictions of `bert-jax predict`.

    Attributes:
        PREDICT: the task's `bert-jax predict`; files of predictions have its formats.
        lower_is_better: names of metrics where the lower value is better.
        splits: validation and test examples; without training examples, a finished model is
            evaluated.
        options: options of the task.
        description: the model.
    """

    PREDICT: ClassVar[PredictSpec[Any, Any]]
    lower_is_better: ClassVar[tuple[str, ...]] = ("loss",)

    splits: Splits[Input]
    options: LabelledOptions
    description: ModelDescription

    @property
    def best_metric(self) -> tuple[str, bool]:  # type: ignore[override]
        name = self.options.best_metric
        return name, name not in self.lower_is_better

    @abc.abstractmethod
    def predictor(self, model: Model) -> Predictor[Any, Prediction]:
        """The predictor of a model; `metrics` takes its predictions."""

    @abc.abstractmethod
    def metrics(
        self, examples: list[Example[Input]], predictions: list[Prediction]
    ) -> dict[str, float]:
        """The metrics of a model's predictions; all examples have labels."""

    @abc.abstractmethod
    def metric_names(self, examples: list[Example[Input]]) -> Iterable[str]:
        """The keys of `metrics` for such examples.

        Raises:
            UserError: the labels are of the wrong kind.
        """

    def calibrated(self, examples: list[Example[Input]], predictions: list[Prediction]) -> Self:
        """With values of the description that are tuned on the first validation set, if any."""
        return self

    def baseline_metrics(self, examples: list[Example[Input]]) -> dict[str, float]:
        """Metrics of trivial predictions, as `<metric>_<baseline>`; all examples have labels."""
        return {}

    def as_output(self, prediction: Prediction) -> Any:
        """A prediction in the form that `PREDICT.formats` write."""
        return prediction

    def expected(self, example: Example[Input]) -> Any:
        """The label in the form of prediction files."""
        return example.label

    def further_files(self, eval_set: EvalSet[Input]) -> Iterable[str]:
        """Names of prediction files in other formats; the file extension selects the format."""
        return ()

    def write_reports(
        self, directory: Path, eval_set: EvalSet[Input], predictions: list[Prediction]
    ) -> None:
        """Writes reports and plots for people, as `<set>.report.txt`; all examples have labels."""

    def is_labelled(self, eval_set: EvalSet[Input]) -> bool:
        """Whether all examples of a set can be evaluated."""
        return all(example.label is not None for example in eval_set.examples)

    def check(self) -> None:
        """Checks that a training can be evaluated.

        Raises:
            UserError: a validation set has no labels, a set has labels of the wrong kind, or no
                metric has the name `best_metric`.
        """
        for eval_set in self.splits.test:
            if self.is_labelled(eval_set):
                self.metric_names(eval_set.examples)
        for eval_set in self.splits.validation:
            if self.is_labelled(eval_set):
                names = set(self.metric_names(eval_set.examples))
                if self.splits.train and self.best_metric[0] not in names:
                    raise unknown_metric(self.best_metric[0], sorted(names))
            elif self.splits.train:
                rule = "give it as {data.test} to have it predicted"
                problem = f"{eval_set.source} has no labels to evaluate a training with"
                raise OptionError("data.validation", eval_set.source, rule, problem)

    def evaluate(self, model: Model, predict: Predict, directory: Path | None) -> EvalResult:
        validation, test = self.splits.validation, self.splits.test
        for eval_set in validation:  # all, before the first is predicted
            if directory is None and not self.is_labelled(eval_set):
                rule = "give a directory with --output to have it predicted"
                raise UserError(f"{eval_set.source} has no labels; {rule}")
        tuned, predictor = self, self.predictor(model)
        metrics: dict[str, dict[str, float]] = {}  # by set
        sets = [*validation, *(() if directory is None else test)]
        for eval_set in sets:
            examples = eval_set.examples
            made = predict(predictor, (example.input for example in examples), eval_set.name)
            if self.is_labelled(eval_set):
                if eval_set is validation[0]:
                    tuned = tuned.calibrated(examples, made)
                metrics[eval_set.name] = tuned.metrics(examples, made)
            if directory is not None and is_main_host():
                with atomic_directory(directory) as folder:
                    tuned.write(folder, eval_set, made)
        on_validation = _named(validation, metrics)
        # Only a training chooses the best checkpoint.
        if self.splits.train and on_validation:
            name = self.best_metric[0]
            values = [metrics[each.name][name] for each in validation]
            on_validation[name] = sum(values) / len(values)
        on_test = _named(test, metrics, "test_")
        names = tuple(eval_set.name for eval_set in sets)
        return EvalResult(on_validation, tuned.description, on_test, names)

    def baselines(self) -> dict[str, float]:
        sets = self.splits.validation
        labelled = (each for each in sets if self.is_labelled(each))
        return _named(sets, {each.name: self.baseline_metrics(each.examples) for each in labelled})

    def _fields(self, example: Example[Input]) -> dict[str, Any]:
        expected = {} if example.label is None else {EXPECTED: self.expected(example)}
        return {"id": example.id, **expected}

    def write(
        self, directory: Path, eval_set: EvalSet[Input], predictions: list[Prediction]
    ) -> None:
        """Writes `<set>.jsonl`, the set's further files, and, if it has labels, the reports."""
        examples = [
            dataclasses.replace(example, fields=self._fields(example))
            for example in eval_set.examples
        ]
        for file in (f"{eval_set.name}.{JSONL}", *self.further_files(eval_set)):
            self.PREDICT.write(directory / file, examples, map(self.as_output, predictions))
        if self.is_labelled(eval_set):
            self.write_reports(directory, eval_set, predictions)


def _named(
    sets: list[EvalSet[Any]], metrics: Mapping[str, Mapping[str, float]], prefix: str = ""
) -> dict[str, float]:
    """The metrics of some sets in one dict; if there are several, with the names of the sets."""
    return {
        f"{prefix}{f'{each.name}_' if len(sets) > 1 else ''}{name}": value
        for each in sets
        for name, value in metrics.get(each.name, {}).items()
    }


@functools.partial(jax.jit, static_argnums=0)
def example_losses(losses: Callable[..., jax.Array], *operands: Any) -> jax.Array:
    """The losses of the examples of an evaluation, compiled once for all evaluations of a run.

    Without jit each operation would be compiled by itself.

    Args:
        losses: the losses of a task, a function or a bound method.
        operands: its arguments.
    """
    return losses(*operands)
