"""The interface of a task to the training loop and to evaluation."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.data.examples import Example
from bert_jax.data.pipeline import Batch, Batches
from bert_jax.metrics import baseline_warning
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.models.parameter_sharding import gathered
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import programs_may_overlap
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.predictor import Model, Predictor
from bert_jax.tasks.base.summary import DataSummary
from bert_jax.tokenization.interface import Tokenizer

# Sums of a loss and of counts over examples, by part of the loss: {"mlm": {"loss": …, …}, …}.
Sums = dict[str, dict[str, jax.Array]]
# (mesh, parameters, global batch) → (sums, weights), without dropout.
LossStep = Callable[[Mesh, Any, dict[str, jax.Array]], tuple[Sums, dict[str, jax.Array]]]


@dataclasses.dataclass(frozen=True)
class EvalResult:
    """The result of an evaluation.

    Attributes:
        metrics: validation metrics; with several sets, each with the set's name as a prefix.
        test_metrics: metrics of the test sets that have labels, as `test_<metric>`.
        description: description of the model, with values that were tuned on the validation
            examples, such as a threshold.
        predictions: predictions by the name of their set, in the order of the examples.
    """

    metrics: dict[str, float]
    description: ModelDescription
    test_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    predictions: Mapping[str, list[Any]] = dataclasses.field(default_factory=dict)


Content = str | Callable[[Path], None]
"""What a file has: a text, or what a function writes to its path, such as a picture."""

Predict = Callable[[Predictor[Any, Any], Sequence[Example[Any]], str], list[Any]]
"""(predictor, examples, name under which outputs are kept) → predictions, see `inference`.

The predictor takes the inputs of the examples; an error names the location of its example.

The name is the name of a set; or, for several calls for a set, NAME.PART.
"""


class Evaluator(abc.ABC):
    """How a task's model is evaluated; it has no state after construction.

    Attributes:
        best_metric: name of the metric that chooses the best checkpoint, and whether the higher
            value is the better one.
    """

    best_metric: tuple[str, bool]

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """Raises UserError where the data cannot be evaluated as the config requires."""

    @property
    def unlabelled(self) -> Sequence[str]:
        """The sources of validation sets without labels, which can only be predicted."""
        return ()

    @abc.abstractmethod
    def evaluate(self, model: Model, predict: Predict, *, with_test: bool) -> EvalResult:
        """Evaluates a model; metrics are the same for any mesh up to rounding.

        Args:
            model: the model of the task.
            predict: runs a predictor.
            with_test: whether the test sets are also predicted, and evaluated if they have labels.
        """

    def files(self, result: EvalResult) -> Iterable[tuple[str, Content]]:
        """The files of predictions and reports by their names; `inference.evaluation` writes them.

        Args:
            result: what `evaluate` has returned.
        """
        return ()

    @abc.abstractmethod
    def baselines(self) -> dict[str, float]:
        """Validation metrics without a model, as `<metric>_<baseline>`."""

    def baseline_warning(self, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
        """A baseline that the metrics of a model do not beat, in words; "" if they beat all."""
        name = self.best_metric[0]
        return (
            baseline_warning(self.best_metric, metrics[name], baselines) if name in metrics else ""
        )


@dataclasses.dataclass(frozen=True)
class ComputedModel:
    """A model that a training step computes.

    Attributes:
        config: its architecture.
        has_vocabulary_head: whether it predicts the masked tokens, if the batches have some.
        flops_per_token: FLOPs of its other maps of every token, in a forward pass.
        is_trained: whether there is also a backward pass.
        rows: the kinds of rows that it computes, see `row_kinds`; (): all.
        has_global_tokens: whether its rows have global tokens, if its layers can have them.
    """

    config: EncoderConfig
    has_vocabulary_head: bool = True
    flops_per_token: float = 0.0
    is_trained: bool = True
    rows: tuple[str, ...] = ()
    has_global_tokens: bool = False


class FrozenInputs:
    """Parameters that no step changes and no checkpoint has, such as a teacher's; here none."""

    def abstract_params(self, mesh: Mesh) -> Any:
        """Shapes, dtypes and shardings of the parameters."""
        return None

    def load(self, mesh: Mesh) -> Any:
        """The parameters, split over the mesh like trained ones; called before the first step."""
        return None

    def outputs(self, params: Any, batch: dict[str, jax.Array]) -> dict[str, Any]:
        """Arrays that are added to a batch for `Task.forward`; they have no gradient."""
        return {}


class Task(abc.ABC):
    """Batches, model and losses of one task.

    A batch becomes `inputs`, then `outputs` of the model (`forward`), then the `loss`. A loss has
    parts ("mlm", "nsp"), each a weighted mean; a loss without parts has one, "". Only numerators
    (`loss`) and denominators (`loss_weights`) leave the task, so that they can be added over
    micro-batches and devices before one is divided by the other: a mean of means would weigh them
    wrongly.

    Attributes:
        module: the Linen module that is trained.
        description: contents of the exported model directory. Its parameters are a subset of those
            of `module`, under the same names.
        tokenizer: the tokenizer that made the ids of the batches.
        derived_metrics: metrics that `summary` computes from others; they get no curve.
        global_loss: whether the loss of a row depends on the other rows of the global batch. Then
            the loss of all micro-batches is computed from their outputs together, and `module`
            takes `row_indices`, see `EncoderInputs`.
        frozen_inputs: fixed parameters and what they add to the batches of a training.
        grows_batches: whether `train_batches` knows `train.batch_warmup`.
    """

    module: nn.Module
    description: ModelDescription
    tokenizer: Tokenizer
    derived_metrics: tuple[str, ...] = ()
    global_loss: bool = False
    frozen_inputs: FrozenInputs = FrozenInputs()
    grows_batches: bool = False
    load_params: Callable[..., tuple[Any, LoadReport]] = staticmethod(model_directory.load_params)
    """Reads `init_from`, or a finished model; a model of several encoders may read each of them."""

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        """The models that a training step computes, for `planning.roofline`."""
        has_global_tokens = bool(getattr(self.module, "global_tokens", ""))
        return (ComputedModel(self.description.config, has_global_tokens=has_global_tokens),)

    @property
    @abc.abstractmethod
    def evaluator(self) -> Evaluator:
        """How the model is evaluated."""

    def model(self, params: Any, mesh: Mesh) -> Model:
        """The model that is evaluated; `params` are the parameters of `module`, on the mesh."""
        return Model(self.module, params, self.tokenizer, self.description, mesh)

    @property
    @abc.abstractmethod
    def examples_per_epoch(self) -> int:
        """The number of training examples."""

    @abc.abstractmethod
    def fingerprints(self) -> dict[str, str]:
        """Digests of the content of all data, by file set; a run continues only with the same."""

    @abc.abstractmethod
    def train_batches(self, start: int, stop: int, *, host: int, hosts: int) -> Batches:
        """This host's rows of the global batches `start` … `stop - 1`.

        Args:
            start: the first batch.
            stop: one past the last.
            host: index of this host's part of each batch, see `sharding.hosts.batch_share`.
            hosts: number of equal parts.
        """

    def pack_rows(self, rows: Batch, parts: int) -> Batch:
        """Packs short rows of one device's batch together, if the task can.

        The rows of each micro-batch are packed separately, see `RowPacker.pack`.
        """
        return rows

    @abc.abstractmethod
    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the largest global batch."""

    @abc.abstractmethod
    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The total weight of a batch for each part of the loss, float32 scalars."""

    def inputs(self, batch: dict[str, jax.Array]) -> Any:
        """The inputs of `module` for a batch."""
        return model_inputs(batch)

    def forward(
        self, params: Any, batch: dict[str, jax.Array], dropout_key: jax.Array | None = None
    ) -> Any:
        """What `loss` reads of a batch: the outputs of `module`, with the batch as axis 0.

        Args:
            params: parameters of `module`.
            batch: a batch as from `train_batches`, with the outputs of `frozen_inputs`.
            dropout_key: key of the dropout masks in training; None: without dropout.
        """
        return apply_model(self.module, params, self.inputs(batch), dropout_key)

    @abc.abstractmethod
    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """Weighted sums over a batch, float32 scalars; each part has at least "loss".

        Args:
            params: parameters of `module`, for losses that have some: of a CRF, of a joint head.
            outputs: the result of `forward` for the batch.
            batch: labels and weights.
        """

    def loss_sums(
        self, params: Any, batch: dict[str, jax.Array], dropout_key: jax.Array | None = None
    ) -> Sums:
        """The `loss` of the outputs of `forward`."""
        return self.loss(params, self.forward(params, batch, dropout_key), batch)

    @functools.cached_property
    def loss_step(self) -> LossStep:
        """`loss_sums` and `loss_weights` under jit, compiled once for all evaluations on a mesh."""

        @functools.partial(jax.jit, static_argnums=0)
        def compiled(mesh: Mesh, params: Any, batch: dict[str, jax.Array]) -> Any:
            return self.loss_sums(gathered(mesh, params), batch), self.loss_weights(batch)

        def step_on_mesh(mesh: Mesh, params: Any, batch: dict[str, jax.Array]) -> Any:
            with on_mesh(mesh):
                result = compiled(mesh, params, batch)
                return result if programs_may_overlap(mesh) else jax.block_until_ready(result)

        return step_on_mesh

    def total_loss(self, losses: dict[str, Any]) -> Any:
        """The loss that is minimised, from the mean loss of each part."""
        return sum(losses.values())

    @abc.abstractmethod
    def examples_as_text(self, count: int) -> str:
        """The first training examples of a run, as text."""

    @property
    @abc.abstractmethod
    def data_summary(self) -> DataSummary:
        """Counts of the data, and warnings where they look wrong."""

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Metrics with derived ones added, such as the perplexity."""
        return metrics


def with_rows(batch: Mapping[str, Any], rows: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of the batch with another number of rows."""
    return {
        key: jax.ShapeDtypeStruct((rows, *value.shape[1:]), value.dtype)
        for key, value in batch.items()
    }


def token_mask(batch: Mapping[str, jax.Array]) -> jax.Array:
    """1 for tokens and 0 for padding, float32 [B, …, T]."""
    mask = batch["attention_mask"] if "attention_mask" in batch else batch["segment_ids"] > 0
    return mask.astype(jnp.float32)


def weighted_sums(weights: jax.Array, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Sums of `weights * value`, [...] each, by name such as "loss"; scalars."""
    return {name: (weights * value).sum() for name, value in values.items()}


def classification_sums(
    logits: jax.Array, labels: jax.Array, weights: jax.Array
) -> dict[str, jax.Array]:
    """float32 [..., C], int [...], float32 [...] → weighted sums of loss and correct answers."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    correct = logits.argmax(axis=-1) == labels
    return weighted_sums(weights, {"loss": losses, "accuracy": correct})


def means(
    sums: dict[str, dict[str, Any]],
    weights: dict[str, Any],
    total: Callable[[dict[str, Any]], Any] = lambda losses: sum(losses.values()),
) -> dict[str, Any]:
    """Flat metrics `<part>_<name>`, and `loss`, the sum of the parts' losses.

    A part with total weight 0 gives 0; the part "" has no prefix.

    Args:
        sums: sums by part, see `Task.loss`.
        weights: the total weight of each part.
        total: the loss from the losses of the parts, see `Task.total_loss`.
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
    return {**metrics, "loss": total({part: values["loss"] for part, values in by_part.items()})}


def mean_losses(task: Task, params: Any, batches: Iterable[Batch], mesh: Mesh) -> dict[str, float]:
    """Losses and metrics over batches: sums and weights are added, then divided once.

    The result is the same for any batch size and number of devices, up to rounding.
    """
    total: Any = None
    for rows in batches:
        sums_and_weights = jax.device_get(task.loss_step(mesh, params, to_global(mesh, rows)))
        sums_and_weights = jax.tree.map(np.float64, sums_and_weights)
        total = (
            jax.tree.map(np.add, total, sums_and_weights) if total is not None else sums_and_weights
        )
    sums, weights = total
    values = means(sums, weights, task.total_loss)
    metrics = {name: float(value) for name, value in values.items()}
    return task.summary(metrics)
