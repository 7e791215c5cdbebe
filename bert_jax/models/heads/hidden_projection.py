"""The projection of a student's hidden states to the width of its teacher.

Source: TinyBERT (Jiao et al., 2020, https://arxiv.org/abs/1909.10351), section 3: one matrix, which
is learned with the student. Only a training has it; exported models do not.
"""

from typing import Any

import flax.linen as nn
import jax

from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import RequestedOutputs
from bert_jax.models.head import Head
from bert_jax.models.layers import kernel_init


class ProjectedStudent(nn.Module):
    """A student, and the matrix "hidden_projection" beside its parameters.

    Names and initial values of the student's parameters do not depend on the projection.

    Attributes:
        config: architecture of the student.
        student: model of the task.
        width: width of the teacher's hidden states.
    """

    config: EncoderConfig
    student: nn.Module
    width: int

    def setup(self) -> None:
        self.model: Any = self.student.clone(config=self.config)
        nn.share_scope(self, self.model)
        self.hidden_projection = nn.Dense(
            self.width, use_bias=False, kernel_init=kernel_init(self.config)
        )

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """The projected hidden states of the student for int32 [B, T]; to initialise both."""
        requested = RequestedOutputs(hidden_states=True)
        _, encoded = self.model(input_ids, encoder_outputs=requested)
        return self.project(encoded.hidden_states)

    def project(self, hidden: jax.Array) -> jax.Array:
        """Hidden states [..., D] → [..., width]."""
        return self.hidden_projection(hidden)


HEAD = Head(axes=(("hidden_projection/kernel", ("embed", None)),))
