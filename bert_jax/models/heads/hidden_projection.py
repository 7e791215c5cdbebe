"""The projection of a student's hidden states to the width of its teacher.

Source: TinyBERT (Jiao et al., 2020, https://arxiv.org/abs/1909.10351), section 3: one matrix, which
is learned with the student. Only a training has it; exported models do not.
"""

from typing import Any

import flax.linen as nn
import jax

from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import EncoderOutput, EncoderOutputs
from bert_jax.models.head import Head
from bert_jax.models.layers import kernel_init


class ProjectedStudent(nn.Module):
    """A student, and the matrix "hidden_projection" beside its parameters.

    The parameters of the student have the names, and for a seed the values, that they have alone.

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

    def __call__(
        self,
        input_ids: jax.Array,
        *,
        encoder_outputs: EncoderOutputs | None = None,
        **inputs: Any,
    ) -> tuple[Any, EncoderOutput]:
        """The output of the student, and of its encoder with hidden states of the teacher's width.

        Args:
            input_ids: int32 [B, T]; for this and the other inputs see the student.
            encoder_outputs: see the student; it must request the hidden states. None: it does.
            inputs: the other inputs.
        """
        encoder_outputs = encoder_outputs or EncoderOutputs(output_hidden_states=True)
        outputs, encoded = self.model(input_ids, encoder_outputs=encoder_outputs, **inputs)
        projected = self.hidden_projection(encoded.hidden_states)
        return outputs, encoded._replace(hidden_states=projected)


HEAD = Head(axes=(("hidden_projection/kernel", ("embed", None)),))
