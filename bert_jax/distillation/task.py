"""The task of a student: any task with additional losses against a teacher."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pipeline import Batch, Batches
from bert_jax.distillation import losses
from bert_jax.distillation.options import SCORE_PARTS, DistillationOptions
from bert_jax.distillation.teacher import Teacher
from bert_jax.distillation.teacher_scores import TeacherScores
from bert_jax.errors import OptionError, listed
from bert_jax.models.encoder import RequestedOutputs
from bert_jax.models.encoder_with_head import apply_model
from bert_jax.models.execution import Execution
from bert_jax.models.heads.hidden_projection import ProjectedStudent
from bert_jax.models.layers import cosines
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.labelled_task import LabelledTask
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import Model
from bert_jax.tasks.base.summary import DataSummary
from bert_jax.tasks.base.task import (
    ComputedModel,
    Evaluator,
    FrozenInputs,
    Sums,
    Task,
    token_mask,
    weighted_sums,
)
from bert_jax.tasks.base.train_spec import TaskConfig

# The name of the task's own loss if it has no parts.
_OWN = "task"
# The keys of a batch with the teacher's scores, and with the outputs of its encoder.
_SCORES, _ENCODED = "teacher_scores", "teacher_encoded"


@dataclasses.dataclass(frozen=True)
class TeacherOutputs(FrozenInputs):
    """The parameters of a teacher, and its outputs in every step.

    Attributes:
        teacher: the teacher.
        task: the task of the student.
        requested: the compared outputs of the teacher's encoder.
    """

    teacher: Teacher
    task: Distillable
    requested: RequestedOutputs

    def abstract_params(self, mesh: Mesh) -> Any:
        return self.teacher.abstract_params(mesh)

    def load(self, mesh: Mesh) -> Any:
        return self.teacher.params(mesh)

    def outputs(self, params: Any, batch: dict[str, jax.Array]) -> dict[str, Any]:
        outputs, encoded = apply_model(
            self.teacher.module, params, self.task.inputs(batch), encoder_outputs=self.requested
        )
        return {_SCORES: self.task.teacher_scores(params, outputs, batch), _ENCODED: encoded}


class DistillationOutputs(NamedTuple):
    """The inputs of a distillation's loss.

    Attributes:
        student: the outputs of the student.
        teacher_scores: see `Distillable.scores`.
        layer_losses: the differences of the layers, float32 [B, …, T] by part of the loss. They are
            computed here: the hidden states of a micro-batch are larger than all other outputs.
    """

    student: Any
    teacher_scores: jax.Array
    layer_losses: dict[str, jax.Array]


class DistilledTask(Task):
    """A task with a teacher; batches, evaluation and model do not change.

    The loss of a training step has the parts of the task, and "soft", "hard", "cosine", "hidden",
    "attention" and "value_relation" as far as they have a weight. The teacher's scores are in the
    batch, or `frozen_inputs` adds them and the outputs of its encoder.
    """

    def __init__(
        self,
        task: Distillable,
        teacher: Teacher,
        options: DistillationOptions,
        reader: Task,
        rows: Task,
    ) -> None:
        """Wraps a task.

        Args:
            task: the task of the student.
            teacher: a model for the same task.
            options: weights of the losses.
            reader: the task that makes the teacher's rows: the same task, or see `Teacher.reader`.
            rows: the task that makes the student's rows: `task` or `reader`.

        Raises:
            UserError: teacher and student cannot be compared.
        """
        self.task, self.teacher, self._options, self._rows = task, teacher, options, rows
        config, width = task.description.config, teacher.description.config.hidden_size
        self.module = task.module
        if options.hidden_weight and config.hidden_size != width:
            self.module = ProjectedStudent(config, task.module, width)
        self.tokenizer, self.description = task.tokenizer, task.description
        self.derived_metrics, self.global_loss = task.derived_metrics, task.global_loss
        self.load_params = task.load_params
        self._layers = _compared_layers(task.description, teacher.description, options)
        self._parts = options.parts
        self._kept: TeacherScores | None = None
        if "hard" in self._parts and task.score_kind not in losses.HARD_KINDS:
            rule = f"the teacher's scores are {task.score_kind}, no classes: leave it out"
            raise OptionError("distillation.hard_weight", options.hard_weight, rule)
        if options.keep_logits or reader is not rows:
            if task.rows_change:
                _refuse_kept_scores(teacher, options)
            if not isinstance(reader, LabelledTask):
                rule = "leave it out: all scores of all words of a corpus would take terabytes"
                raise OptionError("distillation.keep_logits", options.keep_logits, rule)
            self._kept = TeacherScores(reader, teacher, options.keep_logits)
        self.frozen_inputs = self._kept or TeacherOutputs(teacher, task, self._outputs(1))

    # The loss of a training.

    def total_loss(self, losses: dict[str, Any]) -> Any:
        """The sum of the task's own loss and the losses against the teacher, each × its weight."""
        own = {part: loss for part, loss in losses.items() if part not in self._parts}
        against = (weight * losses[part] for part, weight in self._parts.items())
        return self._options.task_weight * self.task.total_loss(own) + sum(against)

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        own = self.task.loss_weights(batch)
        weights = {part or _OWN: weight for part, weight in own.items()}
        token_weight = token_mask(batch).sum()
        score_weight = self.task.score_weights(batch).sum()
        parts = {
            part: score_weight if part in SCORE_PARTS else token_weight for part in self._parts
        }
        return weights | parts

    def forward(
        self, params: Any, batch: dict[str, jax.Array], dropout_key: jax.Array | None = None
    ) -> DistillationOutputs:
        """The outputs of the student, the teacher's scores, and the losses of the layers."""
        outputs, encoded = apply_model(
            self.task.module, params, self.task.inputs(batch), dropout_key, self._outputs(0)
        )
        if isinstance(self.module, ProjectedStudent):
            states = encoded.hidden_states
            states = self.module.apply({"params": params}, states, method="project")
            encoded = encoded._replace(hidden_states=states)
        shape = token_mask(batch).shape
        compared = self._layer_losses(encoded, batch.get(_ENCODED))
        layers = {part: values.reshape(shape) for part, values in compared}
        return DistillationOutputs(outputs, batch[_SCORES], layers)

    def loss(self, params: Any, outputs: DistillationOutputs, batch: dict[str, jax.Array]) -> Sums:
        """The sums of the task's losses, and of the losses against the teacher."""
        task = self.task
        own = task.loss_beside_teacher(params, outputs.student, batch)
        sums = {part or _OWN: values for part, values in own.items()}
        mask = token_mask(batch)
        for part, values in outputs.layer_losses.items():
            sums[part] = weighted_sums(mask, {"loss": values})
        for part in (each for each in SCORE_PARTS if each in self._parts):
            scores = task.scores(params, outputs.student, batch), outputs.teacher_scores
            if part == "soft":
                values = losses.soft_losses(task.score_kind, *scores, self._options.temperature)
            else:
                values = losses.hard_losses(task.score_kind, *scores)
            weights = task.score_weights(batch)
            values = values.reshape(*weights.shape, -1).mean(axis=-1)
            sums[part] = weighted_sums(weights, {"loss": values})
        return sums

    def _outputs(self, model: int) -> RequestedOutputs:
        """The compared outputs of the encoder of the student, 0, or of the teacher, 1."""
        parts, layers = self._parts, self._layers[model]
        return RequestedOutputs(
            "hidden" in parts, "attention" in parts, "value_relation" in parts, layers
        )

    def _layer_losses(self, student: Any, teacher: Any) -> Iterator[tuple[str, jax.Array]]:
        """The losses of the layers of two `EncoderOutput`, float32 [B, T], by part."""
        if "cosine" in self._parts:
            last = (each.last_hidden_state.astype(jnp.float32) for each in (student, teacher))
            yield "cosine", 1 - cosines(*last)
        if "hidden" in self._parts:
            # Number 0 is the embeddings.
            states = (
                each.hidden_states[np.append(0, numbers)].astype(jnp.float32)
                for each, numbers in zip((student, teacher), self._layers, strict=True)
            )
            yield "hidden", losses.hidden_losses(*states)
        for part, field in (("attention", "attentions"), ("value_relation", "value_relations")):
            if part in self._parts:
                weights = (getattr(each, field) for each in (student, teacher))
                yield part, losses.attention_losses(*weights)

    # All else is delegated to the task.

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        """The student, with the projection of its hidden states, and the teacher."""
        models = self.task.computed_models
        if isinstance(self.module, ProjectedStudent):
            config = self.description.config
            maps = 2 * (1 + config.num_hidden_layers) * config.hidden_size * self.module.width
            models = (dataclasses.replace(models[0], flops_per_token=maps), *models[1:])
        if self._kept is not None:
            return models
        teacher = ComputedModel(
            self.teacher.description.config,
            is_trained=False,
            has_global_tokens=models[0].has_global_tokens,
        )
        return (*models, teacher)

    @property
    def evaluator(self) -> Evaluator:
        return self.task.evaluator

    def model(self, params: Any, mesh: Mesh) -> Model:
        """The student, without the projection."""
        return self.task.model(params, mesh)

    @property
    def grows_batches(self) -> bool:  # type: ignore[override]
        return self._rows.grows_batches

    @property
    def examples_per_epoch(self) -> int:
        return self.task.examples_per_epoch

    @property
    def data_summary(self) -> DataSummary:
        return self.task.data_summary

    def fingerprints(self) -> dict[str, str]:
        return {**self.task.fingerprints(), "teacher": self.teacher.fingerprint}

    def train_batches(self, start: int, stop: int, *, host: int, hosts: int) -> Batches:
        rows = self._rows
        with contextlib.closing(rows.train_batches(start, stop, host=host, hosts=hosts)) as batches:
            for number, batch in enumerate(batches, start):
                if self._kept is not None:
                    assert isinstance(rows, LabelledTask)
                    examples = np.array_split(rows.batches.examples(number), hosts)[host]
                    batch[_SCORES] = self._kept.batch_scores(examples, batch["input_ids"].shape[-1])
                yield batch

    def pack_rows(self, rows: Batch, parts: int) -> Batch:
        """Rows stay as they are if hidden states are compared: packed rows have none."""
        return rows if self._options.compares_layers else self._rows.pack_rows(rows, parts)

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        shapes = self._rows.batch_shapes()
        if self._kept is not None:
            rows, *_, length = shapes["input_ids"].shape
            shapes[_SCORES] = self._kept.shape(rows, length)
        return shapes

    def examples_as_text(self, count: int) -> str:
        return self.task.examples_as_text(count)

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        return self.task.summary(metrics)


def _refuse_kept_scores(teacher: Teacher, options: DistillationOptions) -> None:
    """Raises OptionError: scores that are computed once are not those of a changed example."""
    if options.keep_logits:
        rule = "leave it out: images are changed at random in each epoch, and scores with them"
        raise OptionError("distillation.keep_logits", options.keep_logits, rule)
    rule = "set {model.image_size}, {data.image_mean} and {data.image_std} to those of the teacher"
    problem = f"the teacher {teacher.directory} reads images in another way than the student"
    raise OptionError("distillation.teacher", str(teacher.directory), rule, problem)


def _scores_only(options: DistillationOptions, problem: str) -> OptionError:
    """The error of layers that cannot be compared."""
    parts = (part for part in options.parts if part not in SCORE_PARTS)  # in the options' order
    weights = [f"{{distillation.{part}_weight}}" for part in parts]
    rule = f"compare only scores: leave out {listed(weights, len(weights))}"
    return OptionError("distillation.teacher", options.teacher, rule, problem)


def _compared_layers(
    student: ModelDescription, teacher: ModelDescription, options: DistillationOptions
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The compared layers of the student, from 1, and the corresponding layers of the teacher.

    Raises:
        OptionError: layers that are compared do not exist, or have other sizes or tokens.
    """
    own, other = student.config, teacher.config
    patches = [
        (images.patch, images.num_leading_tokens)
        for images in (own.images, other.images)
        if images is not None
    ]
    if options.compares_layers and len({*patches}) > 1:
        problem = (
            f"the teacher {options.teacher} has other tokens of an image than the student, by the "
            "size of a patch or the distillation token: their states cannot be compared"
        )
        raise _scores_only(options, problem)
    count, most = own.num_hidden_layers, other.num_hidden_layers
    layers = options.layer_map or tuple(
        max(1, round(layer * most / count)) for layer in range(1, count + 1)
    )
    if len(layers) != count or max(layers) > most:
        rule = (
            f"the student has {count} layers: give a layer of the teacher, from 1 to {most}, for "
            "each of them, or 0 for those that are not compared"
        )
        raise OptionError("distillation.layer_map", options.layer_map, rule)
    heads = own.num_attention_heads, other.num_attention_heads
    by_head = (
        f"they are compared head by head: the student has {heads[0]} heads and the teacher "
        f"{heads[1]}; leave it out"
    )
    widths = own.hidden_size, other.hidden_size
    by_number = (
        f"the student's hidden states have {widths[0]} numbers and the teacher's {widths[1]}; "
        "give {distillation.hidden_weight} instead, which projects them"
    )
    for name, sizes, rule in (
        ("attention_weight", heads, by_head),
        ("value_relation_weight", heads, by_head),
        ("cosine_weight", widths, by_number),
    ):
        if getattr(options, name) and sizes[0] != sizes[1]:
            raise OptionError(f"distillation.{name}", getattr(options, name), rule)
    compared = [number for number, layer in enumerate(layers, start=1) if layer]
    return tuple(compared), tuple(filter(None, layers))


def distilled(
    task: Task,
    options: DistillationOptions,
    config: TaskConfig[Any],
    execution: Execution,
    create: Callable[[TaskConfig[Any], ModelInit], Task],
) -> Task:
    """The task with the teacher of section `distillation`; the task itself if there is none.

    Args:
        task: the task of the student.
        options: section `distillation`.
        config: the sections that the task reads.
        execution: how models are computed.
        create: makes a task of a config for a model.

    Raises:
        UserError: the teacher does not exist, or does not fit the task.
    """
    if not options.teacher:
        if options != DistillationOptions():
            rule = "give the directory of a model for the same task"
            problem = "section distillation is set, and it names no teacher"
            raise OptionError("distillation.teacher", options.teacher, rule, problem)
        return task
    if not isinstance(task, Distillable):
        rule = "this task has no distillation: leave {distillation.teacher} out"
        raise OptionError("distillation.teacher", options.teacher, rule)
    if isinstance(task, LabelledTask):  # the student's length, also for the teacher's rows
        data = dataclasses.replace(config.data, length=task.options.length)
        config = dataclasses.replace(config, data=data)
    teacher = Teacher.read(options.teacher, task, execution, config.data.length)
    reader = task if teacher.reads_rows_of(task) else teacher.reader(partial(create, config), task)
    rows = reader if teacher.makes_rows_for(task) else task
    if reader is not rows and options.compares_layers:
        problem = (
            f"the teacher {options.teacher} has another tokenizer than the student: the states of "
            "their tokens cannot be compared"
        )
        raise _scores_only(options, problem)
    return DistilledTask(task, teacher, options, reader, rows)
