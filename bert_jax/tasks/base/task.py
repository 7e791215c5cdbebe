"""The interface of a task to the training loop."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining.preparation.prepare import PrepareOptions
from bert_jax.families.family import DEFAULT_MODEL_TYPE, Family, find_family
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.execution import Execution
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import programs_may_overlap
from bert_jax.sharding.rules import gathered, on_mesh
from bert_jax.tokenization.interface import Tokenizer

# Sums of a loss and of counts over examples, by part of the loss: {"mlm": {"loss": …, …}, …}.
Sums = dict[str, dict[str, jax.Array]]
# (parameters, global batch) → (sums, weights), without dropout.
LossStep = Callable[[Any, dict[str, jax.Array]], tuple[Sums, dict[str, jax.Array]]]


@dataclasses.dataclass(frozen=True)
class ModelInit:
    """What a config defines of a task's model before the task has read its data.

    Attributes:
        execution: how the model is computed.
        architecture: the encoder, for a tokenizer.
        tokenizer: that of the model, None where the data bring their own.
        description: of the model that the training begins with, None for a random one.
        is_finished: whether `description` is that of a finished model to evaluate: its labels stay,
            and no training data are needed.
        family: of the model.
    """

    execution: Execution
    architecture: Callable[[Tokenizer], EncoderConfig]
    tokenizer: Tokenizer | None = None
    description: ModelDescription | None = None
    is_finished: bool = False
    family: Family = dataclasses.field(default_factory=lambda: find_family(DEFAULT_MODEL_TYPE))

    def describe(
        self,
        tokenizer: Tokenizer,
        head: Head,
        *,
        num_labels: int | None = EncoderConfig.num_labels,
        labels: tuple[str, ...] = (),
        problem_type: str | None = None,
        add_pooling_layer: bool = True,
        other: Mapping[str, Any] = MappingProxyType({}),
    ) -> ModelDescription:
        """The model that a task trains; see `ModelDescription` for the arguments.

        Args:
            tokenizer: of the model.
            head: of the model.
            num_labels: outputs of the head; None: those of the model that the training begins with.
            labels: their names.
            problem_type: of a classifier.
            add_pooling_layer: for the bare encoder.
            other: more fields of `config.json`.
        """
        config = self.architecture(tokenizer)
        if num_labels is not None:
            config = dataclasses.replace(config, num_labels=num_labels)
        return ModelDescription(
            config,
            head,
            labels=labels,
            problem_type=problem_type,
            add_pooling_layer=add_pooling_layer,
            other=dict(other),
            family=self.family,
        )


class Task(abc.ABC):
    """Batches, model and losses of one task.

    A loss has parts ("mlm", "nsp"), each a weighted mean; a loss without parts has one, "". Only
    numerators (`loss_sums`) and denominators (`loss_weights`) leave the task, so that they can be
    added over micro-batches and devices before one is divided by the other: a mean of means would
    weigh them wrongly.

    Attributes:
        module: the model that is trained.
        description: of the model directory that it becomes. Its parameters are among those of
            `module`, under the same names.
        tokenizer: that made the ids of the batches.
        best_metric: name of the metric that chooses the best checkpoint, and whether the higher
            value is the better one.
        derived_metrics: those that `summary` adds and that follow from another one; no curve is
            drawn of them.
    """

    module: nn.Module
    description: ModelDescription
    tokenizer: Tokenizer
    best_metric: tuple[str, bool]
    derived_metrics: tuple[str, ...] = ()

    @abc.abstractmethod
    def check(self) -> None:
        """Raises UserError where the data cannot be evaluated as the config requires."""

    @property
    @abc.abstractmethod
    def examples_per_epoch(self) -> int:
        """The number of training examples."""

    @abc.abstractmethod
    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
        """This host's rows of the global batches `start` … `stop - 1`.

        Args:
            start: the first batch.
            stop: one past the last.
            host: which part of each batch, see `sharding.hosts.batch_share`.
            hosts: of how many equal parts.
        """

    def pack_rows(self, rows: Batch) -> Batch:
        """Packs short rows of the batch of one device together, if the task can."""
        return rows

    @abc.abstractmethod
    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the largest global batch."""

    def evaluation_batches(
        self, *, host: int, hosts: int, divisor: int = 1
    ) -> Generator[Batch, None, None]:
        """This host's rows of the validation batches of a task that is evaluated by its losses.

        Args:
            host: which part of each batch.
            hosts: of how many equal parts.
            divisor: of the rows of a batch, which rows of weight 0 fill up.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The weight of a batch in each part of the loss, float32 scalars."""

    @abc.abstractmethod
    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """Weighted sums over a batch, float32 scalars; each part has at least "loss".

        Args:
            params: the parameters.
            batch: as from `train_batches`.
            dropout_key: a key for training, None for evaluation without dropout.
        """

    def loss_step(self, mesh: Mesh) -> LossStep:
        """See `make_loss_step`; compiled once for all evaluations of this task on a mesh."""
        if mesh not in self._loss_steps:
            self._loss_steps[mesh] = make_loss_step(self, mesh)
        return self._loss_steps[mesh]

    @functools.cached_property
    def _loss_steps(self) -> dict[Mesh, LossStep]:
        return {}

    @abc.abstractmethod
    def baselines(self) -> dict[str, float]:
        """Validation metrics without a model, as `<metric or part>_<baseline>`."""

    @abc.abstractmethod
    def examples_as_text(self, count: int) -> str:
        """The first training examples of a run, as text."""

    @abc.abstractmethod
    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Metrics with those added that follow from them, such as the perplexity."""


@dataclasses.dataclass(frozen=True)
class TrainingTask:
    """What a config trains and evaluates: `TRAIN` of a task's module.

    Attributes:
        create: the task of a config, with its data.
        defaults: the keys of a config that the task adds, or with its own defaults, by section.
        prepare_options: what `bert-jax prepare` makes; None: the files are read as they are.
        create_without_data: the task with synthetic data of the same shapes, to plan or time a
            step; None: that needs the data.
        has_data: whether the config names the data.
    """

    create: Callable[[ConfigDict, ModelInit], Task]
    defaults: Callable[[], dict[str, dict[str, Any]]]
    prepare_options: Callable[[ConfigDict], PrepareOptions] | None = None
    create_without_data: Callable[[ConfigDict, ModelInit], Task] | None = None
    has_data: Callable[[ConfigDict], bool] = lambda config: True


def with_rows(batch: Mapping[str, Any], rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of a batch that has another number of rows."""
    return {
        key: jax.ShapeDtypeStruct((rows, *value.shape[1:]), value.dtype)
        for key, value in batch.items()
    }


def weighted_sums(weights: jax.Array, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Of arrays [...] by name, such as "loss", the sums over everything with weights [...]."""
    return {name: (weights * value).sum() for name, value in values.items()}


def means(sums: dict[str, dict[str, Any]], weights: dict[str, Any]) -> dict[str, Any]:
    """Flat metrics `<part>_<name>`, and `loss`, the sum of the parts' losses.

    A part of weight 0 gives 0; the part "" has no prefix.
    """
    by_part = {
        part: {name: value / weights[part].clip(1e-8) for name, value in values.items()}
        for part, values in sums.items()
    }
    metrics = {
        f"{part}_{name}" if part else name: value
        for part, values in by_part.items()
        for name, value in values.items()
    }
    return {**metrics, "loss": sum(values["loss"] for values in by_part.values())}


def make_loss_step(task: Task, mesh: Mesh) -> LossStep:
    """The jitted sums and weights of a batch."""

    @jax.jit
    def compiled(params: Any, batch: dict[str, jax.Array]) -> tuple[Sums, dict[str, jax.Array]]:
        return task.loss_sums(gathered(mesh, params), batch), task.loss_weights(batch)

    def step_on_mesh(params: Any, batch: dict[str, jax.Array]) -> tuple[Sums, dict[str, jax.Array]]:
        with on_mesh(mesh):
            result = compiled(params, batch)
            return result if programs_may_overlap(mesh) else jax.block_until_ready(result)

    return step_on_mesh


def mean_losses(
    task: Task, step: LossStep, params: Any, batches: Iterable[Batch], mesh: Mesh
) -> dict[str, float]:
    """Losses and metrics over batches: sums and weights are added, then divided once.

    So the result is the same for any batch size and number of devices, up to rounding.
    """
    total: Any = None
    for rows in batches:
        sums_and_weights = jax.device_get(step(params, to_global(mesh, rows)))
        sums_and_weights = jax.tree.map(np.float64, sums_and_weights)
        total = (
            jax.tree.map(np.add, total, sums_and_weights) if total is not None else sums_and_weights
        )
    sums, weights = total
    metrics = {name: float(value) for name, value in means(sums, weights).items()}
    return task.summary(metrics)
