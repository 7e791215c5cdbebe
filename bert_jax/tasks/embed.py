"""One vector for each text (paper, section 5.3)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import require_one_of
from bert_jax.models.encoder import Encoder
from bert_jax.models.layers import l2_normalize
from bert_jax.models.pooling import OF_TOKENS, POOLINGS
from bert_jax.tasks.base.predict_spec import JSONL, PredictSpec, json_lines, open_texts
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    Model,
    apply_encoder,
    check_finite,
    encoder_of,
)
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding


class EmbeddingPredictor(TextPredictor[np.ndarray]):
    """The vector of a text, float32 [D]."""

    def __init__(
        self, model: Model, options: BatchOptions, *, pooling: str = "mean", normalize: bool = False
    ) -> None:
        """For arguments see `LoadedModel.embed`.

        Raises:
            OptionError: the pooling is unknown, or the model has no pooler.
        """
        require_one_of("pooling", pooling, POOLINGS)
        super().__init__(model, options)
        self._encoder, self._params = encoder_of(model, with_pooler=pooling == "pooler")
        self._pooling, self._normalize = pooling, normalize

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _vectors(
            self._params,
            batch,
            encoder=self._encoder,
            pooling=self._pooling,
            normalize=self._normalize,
        )

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> np.ndarray:
        return check_finite(output.copy(), "the vectors of a text")


@functools.partial(jax.jit, static_argnames=("encoder", "pooling", "normalize"))
def _vectors(
    params: Any, batch: dict[str, jax.Array], *, encoder: Encoder, pooling: str, normalize: bool
) -> jax.Array:
    """A batch → float32 [B, D]."""
    output = apply_encoder(encoder, params, batch)
    if pooling == "pooler":
        vectors = output.pooler_output.astype(jnp.float32)
    else:
        hidden = output.last_hidden_state.astype(jnp.float32)  # BTD
        vectors = OF_TOKENS[pooling](hidden, batch["attention_mask"].astype(bool))
    return l2_normalize(vectors) if normalize else vectors


PREDICT = PredictSpec(
    open_texts,
    lambda model, options: EmbeddingPredictor(
        model, options.batches(), pooling=options.pooling or "mean", normalize=options.normalize
    ),
    {JSONL: json_lines(lambda text, vector: {"embedding": vector})},
    options=("pooling", "normalize"),
)
