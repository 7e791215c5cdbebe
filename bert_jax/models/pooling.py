"""From the vectors of the tokens to one vector of the text, and a model that compares two texts.

Source: Sentence-BERT (Reimers and Gurevych, 2019, https://arxiv.org/abs/1908.10084), section 3.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.layers import dense
from bert_jax.models.packed_rows import PackedRows

Pool = Callable[[jax.Array, jax.Array], jax.Array]
"""[B, T, D] and bool [B, T], False for padding → [B, D]."""

POOLINGS = ("cls", "pooler", "mean", "max")


def cls(hidden: jax.Array) -> jax.Array:
    """The vector of [CLS]: [B, T, D] → [B, D]."""
    return hidden[:, 0]


def masked_mean(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean over the tokens, [CLS] and [SEP] among them (Sentence-BERT, section 3).

    Args:
        hidden: [B, T, D].
        mask: bool [B, T], False for padding.

    Returns:
        [B, D]; zeros for a row without tokens.
    """
    weights = mask[:, :, None].astype(hidden.dtype)
    total = (hidden * weights).sum(axis=1)
    return total / jnp.maximum(weights.sum(axis=1), 1)


def masked_max(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """The greatest value of each of the D dimensions over the tokens.

    Args:
        hidden: [B, T, D].
        mask: bool [B, T], False for padding.

    Returns:
        [B, D]; the least finite number for a row without tokens.
    """
    least = jnp.finfo(hidden.dtype).min
    return jnp.where(mask[:, :, None], hidden, least).max(axis=1)


OF_TOKENS: dict[str, Pool] = {
    "cls": lambda hidden, mask: cls(hidden),
    "mean": masked_mean,
    "max": masked_max,
}
"""The poolings without parameters."""


class PairOutput(NamedTuple):
    """What `SentencePairs` computes for B pairs of texts u and v.

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
        self.encoder = Encoder(
            self.config, self.execution, add_pooling_layer=False, name=ENCODER_SCOPE
        )
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
        hidden = self.encoder(
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
