"""Evaluation of predictions for labelled examples: sets, metrics and reports."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

import jax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, parts_of
from bert_jax.data.outputs import table_line
from bert_jax.errors import OptionError
from bert_jax.metrics import unknown_metric
from bert_jax.metrics.mistakes import judge, worst
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.labelled_options import LabelledOptions
from bert_jax.tasks.base.predict_spec import EXPECTED, JSONL, PredictSpec
from bert_jax.tasks.base.predictor import Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.base.task import Content, EvalResult, Evaluator, Predict

Input = TypeVar("Input")
Prediction = TypeVar("Prediction")

MISTAKES = ".mistakes.tsv"
"""The ending of the file of a set's mistakes."""


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
        return name, self._best[1] not in self.lower_is_better

    @property
    def _best(self) -> tuple[str, str]:
        """The validation set and the metric that `best_metric` names; "": the mean over all."""
        name, sets = self.options.best_metric, self.splits.validation
        chosen = (each.name for each in sets if name.startswith(f"{each.name}_"))
        own = next(chosen, "") if len(sets) > 1 else ""
        return own, name.removeprefix(f"{own}_" if own else "")

    @property
    def predict_options(self) -> Any:
        """The options of `PREDICT` for an evaluation."""
        return self.PREDICT.options(**vars(self.options.batches))

    def predictor(self, model: Model) -> Predictor[Any, Prediction]:
        """The predictor of a model, by default of `PREDICT`; `metrics` takes its predictions."""
        return self.PREDICT.predictor(model, self.predict_options)

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

    def reports(
        self, examples: list[Example[Input]], predictions: list[Prediction]
    ) -> Mapping[str, Content]:
        """Reports and plots for people by the ending of the file; all examples have labels."""
        return {}

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
                own, metric = self._best
                if self.splits.train and own in ("", eval_set.name) and metric not in names:
                    raise unknown_metric(self.best_metric[0], sorted(names))
            elif self.splits.train:
                rule = "give a file with labels; as {data.test} this one is predicted"
                problem = f"{eval_set.source} has no labels to evaluate a training with"
                raise OptionError("data.validation", eval_set.source, rule, problem)

    @property
    def unlabelled(self) -> list[str]:
        return [each.source for each in self.splits.validation if not self.is_labelled(each)]

    def evaluate(self, model: Model, predict: Predict, *, with_test: bool) -> EvalResult:
        validation, test = self.splits.validation, self.splits.test
        if with_test and not self.splits.train and is_main_host():  # else the summary says it
            say(*(each.note for each in test if each.note))
        tuned, predictor = self, self.predictor(model)
        metrics: dict[str, dict[str, float]] = {}  # by set
        predictions: dict[str, list[Prediction]] = {}
        for eval_set in [*validation, *(test if with_test else ())]:
            examples = eval_set.examples
            made = predict(predictor, examples, eval_set.name)
            if self.is_labelled(eval_set):
                if eval_set is validation[0]:
                    tuned = tuned.calibrated(examples, made)
                metrics[eval_set.name] = tuned.metrics(examples, made)
            predictions[eval_set.name] = made
        best = self.best_metric[0]
        return result_of_sets(self.splits, best, metrics, tuned.description, predictions)

    def baselines(self) -> dict[str, float]:
        sets = self.splits.validation
        labelled = (each for each in sets if self.is_labelled(each))
        return metrics_of_sets(
            sets, {each.name: self.baseline_metrics(each.examples) for each in labelled}
        )

    def _fields(self, example: Example[Input]) -> dict[str, Any]:
        expected = {} if example.label is None else {EXPECTED: self.expected(example)}
        return {"id": example.id, **parts_of(example.input), **expected}

    def files(self, result: EvalResult) -> Iterator[tuple[str, Content]]:
        tuned = dataclasses.replace(self, description=result.description)
        for eval_set in [*self.splits.validation, *self.splits.test]:
            if eval_set.name in result.predictions:
                yield from tuned.set_files(eval_set, result.predictions[eval_set.name])

    def set_files(
        self, eval_set: EvalSet[Input], predictions: list[Prediction]
    ) -> Iterator[tuple[str, Content]]:
        """`<set>.jsonl`, the set's further files, and, if it has labels, the reports.

        With labels also `<set>.mistakes.tsv`: the wrong predictions, the most certain first.
        """
        examples = [
            dataclasses.replace(example, fields=self._fields(example))
            for example in eval_set.examples
        ]
        outputs = [*map(self.as_output, predictions)]
        write = functools.partial(self.PREDICT.write, examples=examples, predictions=outputs)
        for file in (f"{eval_set.name}.{JSONL}", *self.further_files(eval_set)):
            yield file, write
        if self.is_labelled(eval_set):
            for ending, content in self.reports(eval_set.examples, predictions).items():
                yield f"{eval_set.name}.{ending}", content
            if mistakes := self._mistakes(examples, outputs):
                yield f"{eval_set.name}{MISTAKES}", mistakes

    def _mistakes(self, examples: list[Example[Input]], outputs: list[Any]) -> str:
        """The wrong predictions of examples with `_fields`; "" if there are none."""
        pairs = zip(examples, outputs, strict=True)
        judged = ((judge(self.PREDICT.record(*pair)), pair[0]) for pair in pairs)
        wrong = worst((of, example) for of, example in judged if of is not None)
        rows = [("location", "id", "expected", "predicted", "score", "text")]
        rows += [
            (example.location, example.id, of.expected, of.predicted, f"{of.score:.4g}", of.text)
            for of, example in wrong
        ]
        return "".join(map(table_line, rows)) if wrong else ""


def metrics_of_sets(
    sets: list[EvalSet[Any]], metrics: Mapping[str, Mapping[str, float]], prefix: str = ""
) -> dict[str, float]:
    """The metrics of some sets in one dict; if there are several, with the names of the sets."""
    return {
        f"{prefix}{f'{each.name}_' if len(sets) > 1 else ''}{name}": value
        for each in sets
        for name, value in metrics.get(each.name, {}).items()
    }


def result_of_sets(
    splits: Splits[Any],
    best_metric: str,
    metrics: Mapping[str, Mapping[str, float]],
    description: ModelDescription,
    predictions: Mapping[str, list[Any]],
) -> EvalResult:
    """The result from the metrics of each set, by its name.

    In a training, the metric that chooses the best checkpoint is the mean over the validation sets,
    unless it is one of a single set.
    """
    sets = splits.validation
    on_validation = metrics_of_sets(sets, metrics)
    if splits.train and on_validation and best_metric not in on_validation:
        values = [metrics[each.name][best_metric] for each in sets]
        on_validation[best_metric] = sum(values) / len(values)
    on_test = metrics_of_sets(splits.test, metrics, "test_")
    return EvalResult(on_validation, description, on_test, predictions)


@functools.partial(jax.jit, static_argnums=0)
def example_losses(losses: Callable[..., jax.Array], *operands: Any) -> jax.Array:
    """The losses of the examples of an evaluation, compiled once for all evaluations of a run.

    Without jit each operation would be compiled by itself.

    Args:
        losses: the losses of a task, a function or a bound method.
        operands: its arguments.
    """
    return losses(*operands)
