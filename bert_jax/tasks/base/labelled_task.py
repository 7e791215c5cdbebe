"""What all tasks with labelled examples share: their options, batches, evaluation, and files."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Entry, LabelledExample
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.row_packing import RowPacker
from bert_jax.errors import OptionError, renamed_options
from bert_jax.models.execution import Execution
from bert_jax.models.packed_rows import PackedRows
from bert_jax.tasks.base.predict_task import EXPECTED, JSONL, PredictionTask
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.base.task import ModelInit, Task, with_rows
from bert_jax.tokenization import Encoding, Tokenizer

# Training batches whose lengths decide how short rows are packed.
_SAMPLE_BATCHES = 64

Example = TypeVar("Example", bound=LabelledExample)
Prediction = TypeVar("Prediction")

# Keys of section `data` that all labelled tasks have, see `splits.read_splits`.
DATA: dict[str, Any] = {
    "directory": "",
    "train": "",
    "validation": (),
    "test": (),
    "validation_fraction": 0.1,
    "limit": 0,
    "length": 128,
    "best_metric": "",
}


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """The model that a task trains.

    Attributes:
        tokenizer: of the model.
        description: of the model directory that comes out.
        execution: how it is computed.
    """

    tokenizer: Tokenizer
    description: ModelDescription
    execution: Execution


@dataclasses.dataclass(frozen=True)
class LabelledOptions:
    """The options of every labelled task.

    Attributes:
        best_metric: the name of the metric that chooses the best checkpoint.
        batch_size: examples of a training batch over all hosts, and rows of one in evaluation.
        length: the most tokens of a row.
        seed: of the order of training examples.
    """

    best_metric: str
    batch_size: int
    length: int
    seed: int


class LabelledTask(Task, Generic[Example, Prediction]):
    """Training on labelled examples, and evaluation of what users would get.

    `inference.evaluation.evaluate` predicts the examples of a validation set with `predictor`, as
    `bert-jax predict` does, and compares predictions with labels. Rows have the config's length.

    A task defines: `make_batches` and `loss_sums` to train; `predictor` to predict; `metrics` and
    `metric_names` to evaluate; `label_of`, `PREDICT` and perhaps `as_output`, `write_reports` to
    write files.

    Attributes:
        PREDICT: what `bert-jax predict` does for the task; files of predictions have its formats.
        lower_is_better: the names of metrics of which the lower value is the better one.
        splits: the examples.
    """

    PREDICT: ClassVar[PredictionTask[Any, Any]]
    lower_is_better: ClassVar[tuple[str, ...]] = ("loss",)

    def __init__(
        self, splits: Splits[Example], model: TrainedModel, options: LabelledOptions
    ) -> None:
        """Raises OptionError where the model has fewer positions than `options.length`."""
        with renamed_options(max_length="length"):
            BatchOptions(max_length=options.length).limit(model.description.config)
        self.splits = splits
        self.tokenizer = model.tokenizer
        self.description = model.description
        self.module = model.description.make_module(model.execution)
        self.options = options
        self.best_metric = options.best_metric, options.best_metric not in self.lower_is_better

    def check(self) -> None:
        """Checks that a training can be evaluated.

        Raises:
            UserError: a validation set has no labels or labels of the wrong kind, or there is no
                metric of the name that chooses the best checkpoint.
        """
        for eval_set in self.splits.validation:
            if self.is_labelled(eval_set):
                names = set(self.metric_names(eval_set.examples))
                if self.splits.train and self.best_metric[0] not in names:
                    raise OptionError(
                        "best_metric",
                        self.best_metric[0],
                        "set {best_metric} to one of them",
                        problem=f"there is no metric {self.best_metric[0]!r}, only "
                        f"{', '.join(sorted(names))}",
                    )
            elif self.splits.train:
                raise OptionError(
                    "validation",
                    eval_set.source,
                    "give it as {test} to have it predicted",
                    problem=f"{eval_set.source} has no labels to evaluate a training with",
                )

    @abc.abstractmethod
    def make_batches(self) -> LabelledBatches:
        """Tokenises the training examples."""

    @abc.abstractmethod
    def predictor(self, model: Model) -> Predictor[Any, Prediction]:
        """The predictor of a model; its predictions are what `metrics` takes."""

    def predictor_input(self, example: Example) -> Any:
        """What the predictor reads of an example: everything but its label."""
        return example

    @abc.abstractmethod
    def label_of(self, example: Example) -> Any:
        """The label as it stands in files of predictions; None: it has none."""

    def has_labels(self, example: Example) -> bool:
        """Whether an example can be evaluated; else it is only predicted."""
        return self.label_of(example) is not None

    @abc.abstractmethod
    def metrics(self, examples: list[Example], predictions: list[Prediction]) -> dict[str, float]:
        """Compares predictions with labels; all examples have them."""

    @abc.abstractmethod
    def metric_names(self, examples: list[Example]) -> Iterable[str]:
        """The names of what `metrics` returns for such examples.

        Raises:
            UserError: the labels are of the wrong kind.
        """

    def calibrate(self, examples: list[Example], predictions: list[Prediction]) -> None:
        """Sets what is tuned on the first validation set, before `metrics`."""

    def baseline_metrics(self, examples: list[Example]) -> dict[str, float]:
        """Metrics without a model, as `<metric>_<baseline>`; all examples have labels."""
        return {}

    def as_output(self, prediction: Prediction) -> Any:
        """A prediction as `PREDICT.formats` write it."""
        return prediction

    def write(
        self, directory: Path, eval_set: EvalSet[Example], predictions: list[Prediction]
    ) -> None:
        """Writes `<set>.jsonl`, the set's further files, and with labels the reports."""
        entries = [self._entry(example) for example in eval_set.examples]
        for file in (f"{eval_set.name}.{JSONL}", *self.further_files(eval_set)):
            self.PREDICT.write(directory / file, entries, map(self.as_output, predictions))
        if self.is_labelled(eval_set):
            self.write_reports(directory, eval_set, predictions)

    def further_files(self, eval_set: EvalSet[Example]) -> Iterable[str]:
        """Names of files of predictions in other formats, which their endings stand for."""
        return ()

    def write_reports(
        self, directory: Path, eval_set: EvalSet[Example], predictions: list[Prediction]
    ) -> None:
        """Writes text and pictures for people, as `<set>.report.txt`; all examples have labels."""

    def batches_of_rows(self, rows: Iterable[Encoding], **arrays: np.ndarray) -> LabelledBatches:
        """Batches of examples that have one row each, for `make_batches`.

        Args:
            rows: of all n training examples in their order.
            **arrays: [n, …], by keys of the batch, such as labels; weights are 1 by default.
        """
        sequences = Sequences.of(rows)
        arrays.setdefault("weights", np.ones(len(sequences.lengths), np.float32))

        def make(chosen: np.ndarray, length: int) -> Batch:
            batch = {key: array[chosen] for key, array in arrays.items()}
            batch["weights"] = np.where(chosen < 0, np.float32(0), batch["weights"])
            return {**sequences.pad(chosen, length, self.tokenizer), **batch}

        return self.batches_of(sequences.lengths, make)

    def batches_of(
        self, lengths: np.ndarray, make: Callable[[np.ndarray, int], Batch]
    ) -> LabelledBatches:
        """Batches of the options' sizes, for `make_batches`; arguments as of `LabelledBatches`."""
        return LabelledBatches(
            lengths,
            make,
            batch_size=self.options.batch_size,
            seed=self.options.seed,
            most=self.options.length,
        )

    def forward(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Any:
        """The outputs of `module` for a batch; with a key, dropout is on."""
        return self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            batch["attention_mask"],
            packed_rows=_packed_rows(batch),
            deterministic=dropout_key is None,
            rngs=None if dropout_key is None else {"dropout": dropout_key},
        )

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
        first = range(min(_SAMPLE_BATCHES, self.batches.batches_per_epoch))
        return RowPacker(map(self.batches.batch, first))

    @property
    def examples_per_epoch(self) -> int:
        """Training examples; a task whose examples give several rows counts rows."""
        return len(self.splits.train)

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
        """Metrics without a model, named as those of an evaluation."""
        metrics: dict[str, float] = {}
        for eval_set in self.splits.validation:
            if self.is_labelled(eval_set):
                metrics |= self.named(eval_set, self.baseline_metrics(eval_set.examples))
        return metrics

    def is_labelled(self, eval_set: EvalSet[Example]) -> bool:
        """Whether all examples of a set can be evaluated."""
        return all(map(self.has_labels, eval_set.examples))

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        return metrics

    def named(self, eval_set: EvalSet[Example], metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics with the set's name before them, where there are several sets."""
        prefix = f"{eval_set.name}_" if len(self.splits.validation) > 1 else ""
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    def best(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metric that chooses the best checkpoint: of several sets, their mean."""
        name, sets = self.best_metric[0], self.splits.validation
        names = [name] if len(sets) == 1 else [f"{eval_set.name}_{name}" for eval_set in sets]
        return {name: sum(metrics[full] for full in names) / len(names)}

    def _entry(self, example: Example) -> Entry[Any]:
        label = self.label_of(example)
        other = {"id": example.id, **({} if label is None else {EXPECTED: label})}
        return Entry(self.predictor_input(example), other, example.place, example.id)


def _packed_rows(batch: Mapping[str, jax.Array]) -> PackedRows | None:
    """Of a batch from `pack_rows`."""
    if "pack_indices" not in batch:
        return None
    unpack_indices = batch["unpack_indices"]
    return PackedRows(batch["pack_indices"], unpack_indices.reshape(-1, unpack_indices.shape[-1]))


def labelled_defaults(
    data: Mapping[str, Any],
    optimizer: Mapping[str, Any] = MappingProxyType({}),
    train: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """The keys of a labelled task with their defaults, by section.

    Training follows the paper (appendix A.3), with the two corrections that make few examples
    suffice: Adam's bias correction, and a decay from the end of the warm-up (Mosbach et al., 2021).

    Args:
        data: the task's own keys of section `data`.
        optimizer: keys that have another default here.
        train: likewise.
    """
    return {
        "data": {**DATA, **data},
        "optimizer": {
            "learning_rate": 3e-5,
            "warmup_ratio": 0.1,
            "decay_from": "warmup",
            "bias_correction": True,
            **optimizer,
        },
        "train": {
            "steps": 0,
            "epochs": 3.0,
            "eval_every": 0,
            "global_batch_size": 32,
            "evaluate_per_epoch": 1,
            "export": "best",
            **train,
        },
    }


def labelled_options(config: ConfigDict, best_metric: str) -> LabelledOptions:
    """The options that every labelled task reads from a config.

    Args:
        config: the whole config.
        best_metric: the default of `data.best_metric`.
    """
    return LabelledOptions(
        best_metric=config.data.best_metric or best_metric,
        batch_size=config.train.global_batch_size,
        length=config.data.length,
        seed=config.seed,
    )


def model_tokenizer(model_init: ModelInit) -> Tokenizer:
    """The tokenizer of the model that is trained.

    Raises:
        OptionError: the config names neither a model to start from nor a tokenizer.
    """
    if model_init.tokenizer is None:
        raise OptionError(
            "init_from",
            "",
            "give the model to fine-tune, a directory or a hub id (or, to train from nothing, a "
            "tokenizer as {path})",
            problem="init_from is not set",
        )
    return model_init.tokenizer


def is_balanced(class_weights: str) -> bool:
    """Whether classes have equal weights in the loss (`data.class_weights`); else examples do.

    Raises:
        OptionError: the value is neither "" nor "balanced".
    """
    if class_weights not in ("", "balanced"):
        raise OptionError("class_weights", class_weights, "it must be '' or 'balanced'")
    return class_weights == "balanced"


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """int64 [C], examples of each class → the weight of such an example, float32 [C].

    The mean over all examples is 1, so that the learning rate keeps its meaning.
    """
    return (counts.sum() / np.count_nonzero(counts) / counts.clip(1)).astype(np.float32)
