"""DeiT's two heads: one on [CLS], and one on the token that learns from a teacher.

Touvron et al., 2021 (https://arxiv.org/abs/2012.12877, section 4).
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.models.comparison import Comparison, DrawnBatch, Labels
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead, output_layer
from bert_jax.models.head import Head, dense_axes


class ImageLogits(NamedTuple):
    """Logits of the labels of an image, float32 [B, C].

    Attributes:
        logits: the mean of the other two, for predictions.
        cls_logits: on [CLS], which learns the labels.
        distillation_logits: on the distillation token, which learns the teacher's predictions.
    """

    logits: jax.Array
    cls_logits: jax.Array
    distillation_logits: jax.Array


class ImageClassificationWithTeacherModel(EncoderWithHead):
    """Logits of the labels of an image, of two heads and their mean."""

    def setup(self) -> None:
        super().setup()
        config, execution, labels = self.config, self.execution, self.config.num_labels
        self.cls_classifier: Any = output_layer(config, execution, labels, "cls_classifier")
        name = "distillation_classifier"
        self.distillation_classifier: Any = output_layer(config, execution, labels, name)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> ImageLogits:
        hidden = encoded.last_hidden_state
        cls_logits = self.cls_classifier(hidden[:, 0])
        distilled = self.distillation_classifier(hidden[:, 1])
        return ImageLogits((cls_logits + distilled) / 2, cls_logits, distilled)


def _labels(draw: DrawnBatch) -> Labels:
    """Coefficients of all logits: the class of transformers has no loss."""
    shape = (len(draw.ids), draw.config.num_labels)
    return {
        name: draw.generator.normal(size=shape).astype(np.float32) for name in ImageLogits._fields
    }


HEAD = Head(
    ImageClassificationWithTeacherModel,
    makes_vectors=False,
    axes=(*dense_axes("cls_classifier"), *dense_axes("distillation_classifier")),
    shown_by=(("cls_classifier/kernel", "distillation_classifier/kernel"),),
    label_parameters=("cls_classifier/", "distillation_classifier/"),
    label_kernels=("cls_classifier/kernel",),
    comparison=Comparison(ImageLogits._fields, ("linear_form",), _labels),
)
