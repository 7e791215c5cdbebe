"""Classes of images, with their scores: JSON lines."""

from typing import Any

import jax
import numpy as np

from bert_jax.data.examples import ImageFile
from bert_jax.tasks.base.image_rows import IMAGES, ImagePredictOptions, ImagePredictor
from bert_jax.tasks.base.predict_spec import PredictSpec
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    Model,
    check_finite,
    check_head,
)
from bert_jax.tasks.classification.predict import TextPrediction, to_prediction, to_record

HEADS = ("image_classification", "image_classification_with_teacher")
"""One head, or two, of which one learns from a teacher; the prediction is their mean."""


class ImageScoresPredictor(ImagePredictor[Any]):
    """The logits of all labels for each image, float32 [C]."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError for a model that has no classifier of images."""
        check_head(model, HEADS, "classify images")
        super().__init__(model, options)

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return logits_of(super().compute(batch))

    def decode(self, example: ImageFile, encoded: EncodedExample, outputs: list[Any]) -> np.ndarray:
        return check_finite(outputs[0].copy(), "the scores of an image")


class ImageLabelPredictor(ImageScoresPredictor):
    """The `Classification` of each image."""

    def decode(self, example: ImageFile, encoded: EncodedExample, outputs: list[Any]) -> Any:
        scores = super().decode(example, encoded, outputs)
        return to_prediction(self.model.description, scores)


def logits_of(outputs: Any) -> jax.Array:
    """The logits of a model with one head or two, float32 [B, C]."""
    return outputs if isinstance(outputs, jax.Array) else outputs.logits


def _record(image: ImageFile, prediction: TextPrediction) -> dict[str, Any]:
    return to_record(prediction)


PREDICT = PredictSpec(IMAGES, ImagePredictOptions, ImageLabelPredictor, _record, heads=HEADS)
