"""No head: the bare encoder."""

import numpy as np

from bert_jax.models.comparison import Comparison, DrawnBatch, Labels
from bert_jax.models.encoder import Encoder
from bert_jax.models.head import Head
from bert_jax.models.image_options import ImageOptions


def _labels(draw: DrawnBatch) -> Labels:
    """Random coefficients, 0 at padding, so that every gradient is non-zero."""
    width = draw.config.hidden_size
    pooled_width = draw.config.head_options(ImageOptions).pooler_output_size or width
    tokens = draw.generator.normal(size=(*draw.mask.shape, width)) * draw.mask[..., None]
    pooled = draw.generator.normal(size=(len(draw.mask), pooled_width))
    return {
        "last_hidden_state": (tokens / tokens.size).astype(np.float32),
        "pooler_output": (pooled / pooled.size).astype(np.float32),
    }


HEAD = Head(
    Encoder,
    makes_vectors=True,
    comparison=Comparison(("pooler_output",), ("linear_form",), _labels),
)
