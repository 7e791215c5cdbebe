"""The methods of a loaded model that read images."""

import os
from collections.abc import Iterable

from bert_jax.inference.engine import predict_examples
from bert_jax.tasks.attention_rollout import AttentionRollout, RolloutPredictor
from bert_jax.tasks.base.image_rows import image_files
from bert_jax.tasks.base.predictor import BatchOptions, Model, not_one_string
from bert_jax.tasks.classification.predict import TextPrediction
from bert_jax.tasks.image_classification.predict import ImageLabelPredictor

Paths = Iterable[str | os.PathLike[str]]


def classify_images(model: Model, paths: Paths, *, batch_size: int = 32) -> list[TextPrediction]:
    """The class of each image file, with its score; `batch_size` images are computed together.

    Raises:
        UserError: the model has no such classifier, or a file is no image.
    """
    predictor = ImageLabelPredictor(model, BatchOptions(batch_size))
    return list(predict_examples(predictor, image_files(not_one_string(paths, "paths"))))


def attention_rollout(model: Model, paths: Paths, *, batch_size: int = 8) -> list[AttentionRollout]:
    """How much each patch of an image counts, by the attention of all layers together.

    `batch_size` images are computed together; each has L · N · T² values meanwhile.

    Raises:
        UserError: the model reads texts, or a file is no image.
    """
    predictor = RolloutPredictor(model, BatchOptions(batch_size))
    return list(predict_examples(predictor, image_files(not_one_string(paths, "paths"))))
