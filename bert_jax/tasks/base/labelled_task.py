"""The base of all tasks with labelled examples: batches, evaluation and files."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Entry, LabelledExample, digest_of
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.row_packing import RowPacker
from bert_jax.errors import OptionError
from bert_jax.files import Journal, atomic_directory
from bert_jax.models.execution import Execution
from bert_jax.models.packed_rows import PackedRows
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.labelled_options import LabelledOptions, length_key
from bert_jax.tasks.base.output_cache import OutputCache
from bert_jax.tasks.base.predict_spec import EXPECTED, JSONL, PredictSpec
from bert_jax.tasks.base.predictor import Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.base.streams import predict_examples
from bert_jax.tasks.base.summary import DataSummary, TokenCounts, count_classes, unknown_share
from bert_jax.tasks.base.task import Task, with_rows
from bert_jax.tokenization import Encoding, Tokenizer


class CutTexts(Protocol):
    """An encoder that cuts long texts: `count` texts so far, `cut` of them too long."""

    count: int
    cut: int


Example = TypeVar("Example", bound=LabelledExample)
Prediction = TypeVar("Prediction")


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """The model that a task trains.

    Attributes:
        tokenizer: tokenizer of the model.
        description: contents of the exported model directory.
        execution: how the model is computed.
    """

    tokenizer: Tokenizer
    description: ModelDescription
    execution: Execution


class LabelledTask(Task, Generic[Example, Prediction]):
    """Training on labelled examples, and evaluation of the predictions that users would get.

    `evaluate` predicts the examples of a validation set with `predictor`, as `bert-jax predict`
    does, and compares predictions with labels. Rows have the config's length.

    A task defines: `make_batches` and `sums` to train; `predictor` to predict; `metrics` and
    `metric_names` to evaluate; `PREDICT` and perhaps `as_output`, `write_reports` to write files.

    Attributes:
        PREDICT: the task's `bert-jax predict`; files of predictions have its formats.
        lower_is_better: names of metrics where the lower value is better.
        unit: what an example is, for the summary of the data.
        default_length: `options.length` for a model that takes as many tokens.
        positive_class: class whose F1 is the metric `f1`; "": F1 is not that of one class.
        splits: training, validation and test examples.
    """

    PREDICT: ClassVar[PredictSpec[Any, Any]]
    lower_is_better: ClassVar[tuple[str, ...]] = ("loss",)
    unit: ClassVar[str] = "rows"
    default_length: ClassVar[int] = 128
    positive_class: str = ""

    def __init__(
        self, splits: Splits[Example], model: TrainedModel, options: LabelledOptions
    ) -> None:
        """Raises OptionError where the model has fewer positions than `options.length`."""
        with length_key():
            limit = options.batches.limit(model.description.config, self.stored_length(model))
        length = options.length or min(self.default_length, limit)
        self._says_cuts = True  # in the first evaluation alone
        self.splits = splits
        self.tokenizer = model.tokenizer
        self.description = model.description
        self.module = model.description.make_module(model.execution)
        self.options = dataclasses.replace(options, length=length)
        self.best_metric = options.best_metric, options.best_metric not in self.lower_is_better

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
                    raise OptionError(
                        "data.best_metric",
                        self.best_metric[0],
                        "set data.best_metric to one of them",
                        problem=f"there is no metric {self.best_metric[0]!r}, only "
                        f"{', '.join(sorted(names))}",
                    )
            elif self.splits.train:
                raise OptionError(
                    "data.validation",
                    eval_set.source,
                    "give it as data.test to have it predicted",
                    problem=f"{eval_set.source} has no labels to evaluate a training with",
                )

    def stored_length(self, model: TrainedModel) -> int | None:
        """The maximum number of tokens per row that the files of a model say; None: none."""
        return model.tokenizer.model_max_length

    @abc.abstractmethod
    def make_batches(self) -> LabelledBatches:
        """Tokenises the training examples."""

    @abc.abstractmethod
    def predictor(self, model: Model) -> Predictor[Any, Prediction]:
        """The predictor of a model; `metrics` takes its predictions."""

    @abc.abstractmethod
    def metrics(self, examples: list[Example], predictions: list[Prediction]) -> dict[str, float]:
        """The metrics of predictions; all examples have labels."""

    @abc.abstractmethod
    def metric_names(self, examples: list[Example]) -> Iterable[str]:
        """The keys of `metrics` for such examples.

        Raises:
            UserError: the labels are of the wrong kind.
        """

    def calibrated(
        self, examples: list[Example], predictions: list[Prediction]
    ) -> ModelDescription:
        """The description with values that are tuned on the first validation set, if any."""
        return self.description

    def baseline_metrics(self, examples: list[Example]) -> dict[str, float]:
        """Metrics of trivial predictions, as `<metric>_<baseline>`; all examples have labels."""
        return {}

    def as_output(self, prediction: Prediction) -> Any:
        """A prediction in the form that `PREDICT.formats` write."""
        return prediction

    def write(
        self, directory: Path, eval_set: EvalSet[Example], predictions: list[Prediction]
    ) -> None:
        """Writes `<set>.jsonl`, the set's further files, and, if it has labels, the reports."""
        entries = [_entry(example) for example in eval_set.examples]
        for file in (f"{eval_set.name}.{JSONL}", *self.further_files(eval_set)):
            self.PREDICT.write(directory / file, entries, map(self.as_output, predictions))
        if self.is_labelled(eval_set):
            self.write_reports(directory, eval_set, predictions)

    def further_files(self, eval_set: EvalSet[Example]) -> Iterable[str]:
        """Names of prediction files in other formats; the file extension selects the format."""
        return ()

    def write_reports(
        self, directory: Path, eval_set: EvalSet[Example], predictions: list[Prediction]
    ) -> None:
        """Writes reports and plots for people, as `<set>.report.txt`; all examples have labels."""

    def content(self, example: Example) -> Any:
        """What makes two examples the same, apart from their labels; hashable."""
        return example.item

    @functools.cached_property
    def data_summary(self) -> DataSummary:
        """Counts of the examples, their labels and their tokens."""
        splits, first = self.splits, self.splits.validation[0]
        numbers = [each.label for each in splits.train if isinstance(each.label, float)]
        known = set(map(self.content, splits.train))
        _ = self.batches  # counts the tokens
        return DataSummary(
            unit=self.unit,
            train=len(splits.train),
            validation={each.name: len(each.examples) for each in splits.validation},
            test={each.name: len(each.examples) for each in splits.test},
            tokens=self._token_counts,
            classes=self.class_counts(splits.train),
            of_words=self.unit == "sentences",
            validation_classes=tuple(self.class_counts(first.examples)),
            positive_class=self.positive_class,
            values=(min(numbers), sum(numbers) / len(numbers), max(numbers)) if numbers else None,
            duplicates={
                each.name: sum(self.content(example) in known for example in each.examples)
                for each in (*splits.validation, *splits.test)
            },
            shapes=splits.shapes,
            reading=self.reading_report(),
        )

    def reading_report(self) -> tuple[str, ...]:
        """Sentences about training examples that were left out or changed; see `DataSummary`."""
        return ()

    def class_counts(self, examples: Iterable[Example]) -> dict[str, int]:
        """How often each class occurs, the most frequent first; empty if labels are no classes."""
        return count_classes(example.label for example in examples)

    def batches_of_rows(
        self, rows: Iterable[Encoding], texts: CutTexts | None = None, **arrays: np.ndarray
    ) -> LabelledBatches:
        """Batches of examples that have one row each, for `make_batches`.

        Args:
            rows: the encoded row of each of the n training examples, in their order.
            texts: the encoder of the rows, whose counts are part of the summary of the data.
            **arrays: [n, …], further keys of the batch, such as labels; weights are 1 by default.
        """
        sequences = Sequences.of(rows)
        arrays.setdefault("weights", np.ones(len(sequences.lengths), np.float32))

        def make(chosen: np.ndarray, length: int) -> Batch:
            batch = {key: array[chosen] for key, array in arrays.items()}
            batch["weights"] = np.where(chosen < 0, np.float32(0), batch["weights"])
            return {**sequences.pad(chosen, length, self.tokenizer), **batch}

        return self.batches_of(sequences.lengths, make, sequences, texts)

    def batches_of(
        self,
        lengths: np.ndarray,
        make: Callable[[np.ndarray, int], Batch],
        sequences: Sequences,
        texts: CutTexts | None = None,
    ) -> LabelledBatches:
        """Batches of the options' sizes, for `make_batches`.

        Args:
            lengths: see `LabelledBatches`.
            make: see `LabelledBatches`.
            sequences: all rows of the training examples; the summary of the data counts them.
            texts: their encoder, if it cuts texts.
        """
        cut = {} if texts is None else {"texts": texts.count, "cut": texts.cut}
        unknown = unknown_share(sequences.id_counts(), self.tokenizer)
        self._token_counts = TokenCounts.of(
            sequences.lengths, unknown, limit=self.options.length, **cut
        )
        return LabelledBatches(
            lengths,
            make,
            batch_size=self.options.batch_size,
            seed=self.options.seed,
            most=self.options.length,
            epochs=self.options.epochs,
            steps=self.options.steps,
        )

    def inputs(self, batch: dict[str, jax.Array]) -> dict[str, Any]:
        names = ("input_ids", "token_type_ids", "attention_mask")
        return {**{name: batch[name] for name in names}, "packed_rows": PackedRows.of_batch(batch)}

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The sum of a batch's `weights`, which are 0 in rows of padding alone."""
        return {"": batch["weights"].sum()}

    @functools.cached_property
    def batches(self) -> LabelledBatches:
        """The training batches."""
        return self.make_batches()

    @functools.cached_property
    def row_packer(self) -> RowPacker:
        """How short rows of a training batch are packed, decided by the first batches."""
        return RowPacker(self.batches.samples())

    @property
    def examples_per_epoch(self) -> int:
        """Number of training examples; a task with several rows per example counts rows."""
        return len(self.splits.train)

    def fingerprints(self) -> dict[str, str]:
        sets = (*self.splits.validation, *self.splits.test)
        by_name = {"train": self.splits.train, **{each.name: each.examples for each in sets}}
        return {name: digest_of(examples) for name, examples in by_name.items()}

    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
        # Padding tokenised rows takes microseconds: nothing is made ahead.
        return (self.batches.batch(number, host=host, hosts=hosts) for number in range(start, stop))

    def pack_rows(self, rows: Batch) -> Batch:
        return self.row_packer.pack(rows)

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return with_rows(self.batches.empty_row(), self.options.batch_size)

    def baselines(self) -> dict[str, float]:
        """Metrics of trivial predictions, named like those of an evaluation."""
        metrics: dict[str, float] = {}
        for eval_set in self.splits.validation:
            if self.is_labelled(eval_set):
                metrics |= self._named(eval_set, self.baseline_metrics(eval_set.examples))
        return metrics

    def is_labelled(self, eval_set: EvalSet[Example]) -> bool:
        """Whether all examples of a set can be evaluated."""
        return all(example.label is not None for example in eval_set.examples)

    def evaluate(
        self, params: Any, mesh: Mesh, directory: Path | None = None, kept: Journal | None = None
    ) -> dict[str, float]:
        """The metrics of the predictions; with several sets, each with the set's name as a prefix.

        Args:
            params: parameters of `module`, on the mesh.
            mesh: devices of the evaluation.
            directory: directory for predictions and reports, including those of the test sets,
                which are evaluated, too, see `test_metrics`; None: they are not written.
            kept: outputs of an earlier call; those that are computed are added.

        Raises:
            UserError: a set has no labels and there is no directory for its predictions.
        """
        model = Model(self.module, params, self.tokenizer, self.description, mesh)
        metrics: dict[str, float] = {}
        validation = self.splits.validation
        for eval_set in validation:  # all, before the first is predicted
            if directory is None and not self.is_labelled(eval_set):
                rule = "give a directory with --output to have it predicted"
                raise OptionError("output", None, rule, f"{eval_set.source} has no labels")
        for eval_set in validation:
            predictions = self._predictions(model, eval_set, kept, self._says_cuts)
            if self.is_labelled(eval_set):
                if eval_set is validation[0]:
                    self.description = self.calibrated(eval_set.examples, predictions)
                metrics |= self._named(eval_set, self.metrics(eval_set.examples, predictions))
            self._write_to(directory, eval_set, predictions)
        self._says_cuts = False
        if directory is not None:
            test_metrics: dict[str, float] = {}
            for eval_set in self.splits.test:
                predictions = self._predictions(model, eval_set, kept)
                if self.is_labelled(eval_set):
                    prefix = "test_" if len(self.splits.test) == 1 else f"test_{eval_set.name}_"
                    scores = self.metrics(eval_set.examples, predictions)
                    test_metrics |= {f"{prefix}{name}": scores[name] for name in scores}
                self._write_to(directory, eval_set, predictions)
            self.test_metrics = test_metrics
        # Only a training chooses the best checkpoint.
        return metrics | self._best(metrics) if self.splits.train and metrics else metrics

    def _named(self, eval_set: EvalSet[Example], metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics with the set's name as prefix, if there are several sets."""
        prefix = f"{eval_set.name}_" if len(self.splits.validation) > 1 else ""
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    def _best(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metric that chooses the best checkpoint; for several sets, their mean."""
        name, sets = self.best_metric[0], self.splits.validation
        names = [name] if len(sets) == 1 else [f"{eval_set.name}_{name}" for eval_set in sets]
        return {name: sum(metrics[full] for full in names) / len(names)}

    def _predictions(
        self, model: Model, eval_set: EvalSet[Example], kept: Journal | None, report: bool = True
    ) -> list[Prediction]:
        items = (example.item for example in eval_set.examples)
        outputs = None if kept is None else OutputCache(kept, eval_set.name)
        return list(predict_examples(self.predictor(model), items, kept=outputs, report=report))

    def _write_to(
        self, directory: Path | None, eval_set: EvalSet[Example], predictions: list[Prediction]
    ) -> None:
        if directory is not None and is_main_host():
            with atomic_directory(directory) as folder:
                self.write(folder, eval_set, predictions)


@functools.partial(jax.jit, static_argnums=0)
def example_losses(losses: Callable[..., jax.Array], *operands: Any) -> jax.Array:
    """The losses of the examples of an evaluation, compiled once for all evaluations of a run.

    Without jit each operation would be a program of its own to compile.

    Args:
        losses: the losses of a task, a function or a bound method.
        operands: its arguments.
    """
    return losses(*operands)


def _entry(example: LabelledExample) -> Entry[Any]:
    other = {"id": example.id, **({} if example.label is None else {EXPECTED: example.label})}
    return Entry(example.item, other, example.place, example.id)
