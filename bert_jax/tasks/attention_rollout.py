"""How much each patch of an image counts for [CLS], by the attention of all layers together.

Abnar and Zuidema, 2020 (https://arxiv.org/abs/2005.00928), section 3, as Dosovitskiy et al., 2021,
appendix D.8, use it: the mean over the heads, half of it and half of the residual connection.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.examples import ImageFile
from bert_jax.models.encoder import Encoder, RequestedOutputs
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.pictures.image_weights import ImageWeights, image_weights_page
from bert_jax.tasks.base.encoder_layers import encoder_of
from bert_jax.tasks.base.image_rows import (
    IMAGES,
    ImagePredictOptions,
    ImagePredictor,
    image_processor,
)
from bert_jax.tasks.base.predict_spec import (
    OutputFile,
    PredictOptions,
    PredictSpec,
    without_columns,
)
from bert_jax.tasks.base.predictor import BatchOptions, EncodedExample, Model, check_finite
from bert_jax.tasks.base.short_repr import ShortRepr


@dataclasses.dataclass(frozen=True)
class RolloutPredictOptions(ImagePredictOptions):
    """The options of `bert-jax predict` for the attention to patches.

    Attributes:
        batch_size: maximum number of images per batch; each has L · N · T² values meanwhile.
    """

    batch_size: int = 8


@dataclasses.dataclass(frozen=True, repr=False)
class AttentionRollout(ShortRepr):
    """How much each patch of an image counts; a notebook shows it as a picture.

    Attributes:
        name: name of the image.
        weights: float32 [rows, columns] of the patches; with those of [CLS] itself, and of a
            distillation token, they add up to 1.
        image: what the model reads, uint8 [height, width, colours].
    """

    name: str
    weights: np.ndarray
    image: np.ndarray

    def picture(self) -> ImageWeights:
        """What a page shows."""
        return ImageWeights(self.name, self.image, self.weights)

    def _repr_html_(self) -> str:
        return image_weights_page([self.picture()])._repr_html_()


class RolloutPredictor(ImagePredictor[AttentionRollout]):
    """The `AttentionRollout` of each image."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError for a model that reads texts."""
        image_processor(model.tokenizer, model.description)
        super().__init__(model, options)
        self._encoder, self._params = encoder_of(model)

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _rollout(self._params, batch, encoder=self._encoder)

    def decode(self, example: ImageFile, encoded: EncodedExample, outputs: list[Any]) -> Any:
        images = self.model.config.images
        assert images is not None, "it has an image processor"
        weights = check_finite(outputs[0][images.num_leading_tokens :], "the attention to an image")
        image = self.processor.processing.colours(encoded.rows[0].pixels)
        return AttentionRollout(example.name, weights.reshape(images.grid(self.size)), image)


def rollout(attentions: jax.Array) -> jax.Array:
    """Attention weights [L, B, N, T, T] → how much each token counts for the first, [B, T]."""
    size = attentions.shape[-1]
    # From the last layer to the first; only the row of the first token is needed.
    counts = jnp.broadcast_to(jnp.eye(1, size), (attentions.shape[1], 1, size))
    for weights in attentions[::-1].mean(axis=2):
        counts = (counts + counts @ weights) / 2
    return counts[:, 0]


@functools.partial(jax.jit, static_argnames="encoder")
def _rollout(params: Any, batch: dict[str, jax.Array], *, encoder: Encoder) -> jax.Array:
    requested = RequestedOutputs(attentions=True)
    output = apply_model(encoder, params, model_inputs(batch), encoder_outputs=requested)
    return rollout(output.attentions.astype(jnp.float32))


def _page(options: PredictOptions) -> Sequence[OutputFile[Any, Any]]:
    """A page with pictures of all images."""
    return without_columns(
        OutputFile(lambda _, result: result.picture().element(), image_weights_page().layout)
    )(options)


PREDICT = PredictSpec(
    IMAGES,
    RolloutPredictOptions,
    RolloutPredictor,
    lambda image, result: {"rollout": result.weights},
    {"html": _page},
    endings={".html": "html"},
)
