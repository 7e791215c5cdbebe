"""What a task adds so that a student can learn it from a teacher."""

import abc
from typing import Any

import flax.linen as nn
import jax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.task import Sums, Task


class Distillable(Task):
    """A task that a student can learn from a teacher, see `distillation`.

    Attributes:
        scores_tokens: whether each token has `scores`; otherwise each example.
        reads_pairs: whether a row may hold two texts, which families mark in different ways.
        rows_change: whether an example has other rows in each epoch.
        teacher_heads: heads that a teacher may have, beside that of the student.
    """

    scores_tokens: bool = False
    reads_pairs: bool = True
    rows_change: bool = False
    teacher_heads: tuple[str, ...] = ()

    @property
    @abc.abstractmethod
    def score_kind(self) -> str:
        """Meaning of `scores`: "classes" (one of C), "labels" (any of C), "values" or "vectors"."""

    @abc.abstractmethod
    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """The outputs that a student takes over from its teacher, float32 [..., C].

        Scores of impossible choices, such as padding, are the lowest finite number.
        """

    def teacher_scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """The `scores` of a teacher, whose outputs may have another form."""
        return self.scores(params, outputs, batch)

    def loss_beside_teacher(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """The `loss` against the labels beside that against the teacher's scores."""
        return self.loss(params, outputs, batch)

    def score_weights(self, batch: dict[str, jax.Array]) -> jax.Array:
        """The weight of each of the `scores` in the loss of a distillation, float32 [...]."""
        return batch["weights"]

    def module_of(self, description: ModelDescription, execution: Execution) -> nn.Module:
        """The model of this task that a teacher's files belong to."""
        return description.make_module(execution)
