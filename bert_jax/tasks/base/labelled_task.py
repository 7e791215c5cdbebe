"""The half of a task that all labelled problems have in common."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.pipeline import Batch
from bert_jax.data.row_packing import RowSharing
from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig, Execution
from bert_jax.models.shared_rows import SharedRows
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.base.task import ModelInit, Task, with_rows
from bert_jax.tokenization import Tokenizer

# Training batches by whose lengths it is decided how short rows share one.
_LOOKED_AT = 64

Example = TypeVar("Example")
Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """What is trained.

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
    """What every labelled task is told.

    Attributes:
        best_metric: see `Task`.
        batch_size: examples of a training batch over all hosts, and rows of one in evaluation.
        length: the most tokens of a row.
        seed: of the order of training examples.
    """

    best_metric: tuple[str, bool]
    batch_size: int
    length: int
    seed: int


class LabelledTask(Task, Generic[Example, Answer]):
    """Training on labelled examples, and judging by the answers that users would get.

    An evaluation asks the model for its answers through `inference/`, as `bert-jax predict` does,
    and compares them with the labels; rows have the length that the config says.

    Attributes:
        splits: the examples.
    """

    def __init__(
        self, splits: Splits[Example], model: TrainedModel, options: LabelledOptions
    ) -> None:
        """Takes what every labelled task has.

        Raises:
            UserError: the model has fewer positions than rows are to have tokens.
        """
        check_length(options.length, model.description.config)
        self.splits = splits
        self.tokenizer = model.tokenizer
        self.description = model.description
        self.module = model.description.make_module(model.execution)
        self.options = options
        self.best_metric = options.best_metric

    def check(self) -> None:
        """See `Task`.

        Raises:
            UserError: a training has nothing to be judged by, or no metric of the name that the
                best is chosen by, or labels are of the wrong kind.
        """
        for part in self.splits.validation:
            if self.is_labelled(part):
                names = set(self.metric_names(part.examples))
                if self.splits.train and self.best_metric[0] not in names:
                    raise UserError(
                        f"data.best_metric {self.best_metric[0]!r} is none of "
                        f"{', '.join(sorted(names))}"
                    )
            elif self.splits.train:
                raise UserError(
                    f"{part.source} has no labels that a training can be judged by; give it as "
                    "data.test to have it predicted"
                )

    @abc.abstractmethod
    def make_batches(self) -> LabelledBatches:
        """The batches of the training examples; this is where they are tokenised."""

    @abc.abstractmethod
    def predictor(self, model: Model) -> Predictor[Any, Answer]:
        """How the model predicts; the same as for users of the loaded model."""

    def predictor_input(self, example: Example) -> Any:
        """What the predictor reads of an example: everything but its label."""
        return example

    @abc.abstractmethod
    def has_labels(self, example: Example) -> bool:
        """Whether an example can be judged; else it is only predicted."""

    @abc.abstractmethod
    def metrics(self, examples: list[Example], answers: list[Answer]) -> dict[str, float]:
        """Compares answers with labels; all examples have them."""

    @abc.abstractmethod
    def metric_names(self, examples: list[Example]) -> Iterable[str]:
        """The names of what `metrics` gives for such examples.

        Raises:
            UserError: they cannot be judged, as their labels are of the wrong kind.
        """

    def calibrate(self, examples: list[Example], answers: list[Answer]) -> None:
        """Sets what is tuned by the first validation file, before `metrics`; mostly nothing."""

    @abc.abstractmethod
    def baseline_metrics(self, examples: list[Example]) -> dict[str, float]:
        """Metrics of answers that need no model, as `<metric>_<name>`; all examples have labels."""

    @abc.abstractmethod
    def write(self, directory: Path, part: EvalSet[Example], answers: list[Answer]) -> None:
        """Writes predictions, named after the part, and where there are labels, reports."""

    def batches_of(
        self, lengths: np.ndarray, make: Callable[[np.ndarray, int], Batch]
    ) -> LabelledBatches:
        """Batches as the options say, for `make_batches`; arguments as of `LabelledBatches`."""
        return LabelledBatches(
            lengths,
            make,
            batch_size=self.options.batch_size,
            seed=self.options.seed,
            most=self.options.length,
        )

    def forward(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Any:
        """What `module` gives for a batch; with a key, dropout is on."""
        return self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            batch["attention_mask"],
            shared_rows=_shared_rows(batch),
            deterministic=dropout_key is None,
            rngs=None if dropout_key is None else {"dropout": dropout_key},
        )

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The sum of `weights` of a batch, of which rows that fill it up have none."""
        return {"": batch["weights"].sum()}

    @functools.cached_property
    def batches(self) -> LabelledBatches:
        """The training batches."""
        return self.make_batches()

    @functools.cached_property
    def sharing(self) -> RowSharing:
        """How short rows of a training batch share one: as suits the first batches."""
        first = range(min(_LOOKED_AT, self.batches.batches_per_epoch))
        return RowSharing(map(self.batches.batch, first))

    @property
    def examples_per_epoch(self) -> int:
        """Training examples; a task whose examples give several rows counts these."""
        return len(self.splits.train)

    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
        """See `Task`. Padding tokenised rows takes microseconds: nothing is made ahead."""
        return (self.batches.batch(number, host=host, hosts=hosts) for number in range(start, stop))

    def pack_rows(self, rows: Batch) -> Batch:
        """See `Task`: short rows share one."""
        return self.sharing.share(rows)

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """See `Task`: rows as long as the config allows."""
        return with_rows(self.batches.empty_row(), self.options.batch_size)

    def evaluate(self, params: Any, mesh: Mesh, directory: Path | None = None) -> dict[str, float]:
        # Until the training loop takes the evaluation as a callable.
        from bert_jax.inference.evaluation import evaluate

        return evaluate(self, params, mesh, directory)

    def baselines(self) -> dict[str, float]:
        """See `Task`; named as in `evaluate`."""
        found: dict[str, float] = {}
        for part in self.splits.validation:
            if self.is_labelled(part):
                found |= self.named(part, self.baseline_metrics(part.examples))
        return found

    def is_labelled(self, part: EvalSet[Example]) -> bool:
        """Whether all examples of a part can be judged."""
        return all(map(self.has_labels, part.examples))

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Nothing follows from the metrics of a step."""
        return metrics

    def named(self, part: EvalSet[Example], metrics: Mapping[str, float]) -> dict[str, float]:
        """Metrics under the names that they have beside those of other parts."""
        prefix = f"{part.name}_" if len(self.splits.validation) > 1 else ""
        return {f"{prefix}{name}": value for name, value in metrics.items()}

    def best(self, found: dict[str, float]) -> dict[str, float]:
        """The metric that the best checkpoint is chosen by: of several parts, their mean."""
        name, parts = self.best_metric[0], self.splits.validation
        names = [name] if len(parts) == 1 else [f"{part.name}_{name}" for part in parts]
        return {name: sum(found[one] for one in names) / len(names)}


def _shared_rows(batch: Mapping[str, jax.Array]) -> SharedRows | None:
    """Of a batch from `pack_rows`."""
    if "slots" not in batch:
        return None
    unpack_indices = batch["unpack_indices"]
    return SharedRows(batch["slots"], unpack_indices.reshape(-1, unpack_indices.shape[-1]))


def model_tokenizer(model_init: ModelInit) -> Tokenizer:
    """The tokenizer of the model that is trained.

    Raises:
        UserError: the config names neither a model to begin with nor a tokenizer.
    """
    if model_init.tokenizer is None:
        raise UserError(
            "init_from is not set; give the model to fine-tune, a directory or a hub id (or, to "
            "train from nothing, tokenizer.path)"
        )
    return model_init.tokenizer


def check_length(length: int, config: EncoderConfig) -> None:
    """Raises UserError where rows are longer than the model takes."""
    try:
        BatchOptions(max_length=length).limit(config)
    except UserError as error:
        raise UserError(str(error).replace("max_length", "data.length", 1)) from None
