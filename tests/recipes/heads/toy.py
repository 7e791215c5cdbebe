"""A head in one file: how important each token is, from 0 to 1."""

import jax
import jax.numpy as jnp

from bert_jax.models.comparison import IGNORED_LABEL, Arrays, Comparison, DrawnBatch, Labels
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead
from bert_jax.models.head import Head, dense_axes


class ImportanceModel(EncoderWithHead):
    """The encoder with a sigmoid of a linear layer on every token."""

    def setup(self) -> None:
        super().setup()
        self.importance = self._dense(1, "importance")
        self.importance_scale = self.param("importance_scale", lambda _: jnp.ones(1))

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Float32 [B, T]."""
        scores = self.importance(encoded.last_hidden_state)[..., 0] * self.importance_scale
        return jax.nn.sigmoid(scores.astype(jnp.float32))


def _labels(draw: DrawnBatch) -> Labels:
    values = draw.generator.random(draw.ids.shape)
    return {"labels": jnp.where(draw.is_word, values, IGNORED_LABEL)}


def _loss(logits: Arrays, labels: Arrays, _: str) -> list[jax.Array]:
    counts = labels["labels"] != IGNORED_LABEL
    errors = jnp.square(logits["logits"] - labels["labels"])
    return [jnp.sum(jnp.where(counts, errors, 0)) / jnp.sum(counts)]


HEAD = Head(
    ImportanceModel,
    axes=(*dense_axes("importance"), ("importance_scale", ())),
    decay=(("importance_scale", False),),
    shown_by=(("importance/kernel",),),
    comparison=Comparison(("logits",), ("squared_error",), _labels, ("logits",), _loss),
)
