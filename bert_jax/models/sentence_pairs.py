"""Two texts through one encoder: Sentence-BERT (Reimers and Gurevych, 2019), section 3.

The two vectors are called u and v.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.layers import dense
from bert_jax.models.packed_rows import PackedRows

Pool = Callable[[jax.Array, jax.Array], jax.Array]
"""[B, T, D] and bool [B, T], False for padding → [B, D]."""


class PairOutput(NamedTuple):
    """What the model computes for B pairs.

    Attributes:
        vectors: float32 [B, 2, D], u and v; zeros for a text without tokens.
        logits: float32 [B, C], scores of the labels; None without classifier.
    """

    vectors: jax.Array
    logits: jax.Array | None


class SentencePairs(nn.Module):
    """An encoder, and a classifier of pairs that is dropped after training.

    The encoder has no pooler: no loss would reach it, and weight decay alone would change it.

    Attributes:
        config: the architecture of the encoder.
        execution: how it is computed.
        pool: from the vectors of the tokens to that of the text.
        labels: C, for a classifier of (u, v, |u - v|); 0 for none.
    """

    config: EncoderConfig
    execution: Execution
    pool: Pool
    labels: int = 0

    def setup(self) -> None:
        self.bert = Encoder(self.config, self.execution, add_pooling_layer=False)
        if self.labels:
            self.classifier = dense(self.config, self.execution, self.labels, "classifier")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        *,
        packed_rows: PackedRows | None = None,
        deterministic: bool = True,
    ) -> PairOutput:
        """Takes int32 [B, 2, T], three times; see `Encoder`."""
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        length = input_ids.shape[-1]
        mask = attention_mask.reshape(-1, length)  # 2B,T
        hidden = self.bert(
            input_ids.reshape(-1, length),
            None if token_type_ids is None else token_type_ids.reshape(-1, length),
            mask,
            packed_rows=packed_rows,
            deterministic=deterministic,
        ).last_hidden_state
        pooled = self.pool(hidden.astype(jnp.float32), mask.astype(bool))
        pooled = jnp.where(mask.any(axis=1, keepdims=True), pooled, 0)
        vectors = pooled.reshape(*input_ids.shape[:-1], -1)  # B2D
        if not self.labels:
            return PairOutput(vectors, None)
        logits = self.classifier(pair_features(vectors[..., 0, :], vectors[..., -1, :]))
        return PairOutput(vectors, logits.astype(jnp.float32))


def pair_features(u: jax.Array, v: jax.Array) -> jax.Array:
    """The input of the classifier of pairs: [..., D] twice → (u, v, |u - v|), [..., 3 D]."""
    return jnp.concatenate([u, v, jnp.abs(u - v)], axis=-1)
