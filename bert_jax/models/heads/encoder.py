"""No head: the bare encoder."""

import numpy as np

from bert_jax.models.comparison import Comparison, DrawnBatch, Labels
from bert_jax.models.encoder import Encoder
from bert_jax.models.head import Head


def _labels(draw: DrawnBatch) -> Labels:
    """Random coefficients, 0 at padding, so that every gradient is non-zero."""
    tokens = draw.generator.normal(size=(*draw.mask.shape, draw.hidden_size)) * draw.mask[..., None]
    pooled = draw.generator.normal(size=(len(draw.mask), draw.hidden_size))
    return {
        "last_hidden_state": (tokens / tokens.size).astype(np.float32),
        "pooler_output": (pooled / pooled.size).astype(np.float32),
    }


HEAD = Head(Encoder, comparison=Comparison(("pooler_output",), ("linear_form",), _labels))
