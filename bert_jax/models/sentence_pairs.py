"""Two texts through one encoder, and the losses that make their vectors comparable.

Source: Sentence-BERT (Reimers and Gurevych, 2019), section 3. The two vectors are called u and v;
the losses are those of the library sentence-transformers, a number for each pair.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from bert_jax.models.bert import Bert
from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.layers import dense, unit_length
from bert_jax.models.shared_rows import SharedRows

Pool = Callable[[jax.Array, jax.Array], jax.Array]
"""[B, T, D] and bool [B, T], False for padding → [B, D]."""


class PairOutput(NamedTuple):
    """What is said of B pairs.

    Attributes:
        vectors: float32 [B, 2, D], u and v; zeros for a text without tokens.
        logits: float32 [B, C], scores of the labels; None without classifier.
    """

    vectors: jax.Array
    logits: jax.Array | None


class SentencePairs(nn.Module):
    """An encoder, and a classifier of pairs that is thrown away after training.

    The encoder has no pooler: no loss would reach it, and weight decay alone would change it.

    Attributes:
        config: the architecture of the encoder.
        execution: how it is computed.
        pool: from the vectors of the tokens to that of the text.
        labels: C, for a classifier of (u, v, |u - v|); 0: there is none.
    """

    config: BertConfig
    execution: Execution
    pool: Pool
    labels: int = 0

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Bert(self.config, self.execution, add_pooling_layer=False)
        if self.labels:
            self.classifier = dense(self.config, self.execution, self.labels, "classifier")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        *,
        shared_rows: SharedRows | None = None,
        deterministic: bool = True,
    ) -> PairOutput:
        """Takes int32 [B, 2, T], three times; see `Bert`."""
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        length = input_ids.shape[-1]
        mask = attention_mask.reshape(-1, length)  # 2B,T
        hidden = self.bert(
            input_ids.reshape(-1, length),
            None if token_type_ids is None else token_type_ids.reshape(-1, length),
            mask,
            shared_rows=shared_rows,
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
    """What the classifier of pairs reads: [B, D] twice → (u, v, |u - v|), [B, 3 D]."""
    return jnp.concatenate([u, v, jnp.abs(u - v)], axis=-1)


def cosines(u: jax.Array, v: jax.Array) -> jax.Array:
    """The cosine of each pair of vectors: float32 [B, D] twice → [B]; 0 for a zero vector."""
    return (unit_length(u) * unit_length(v)).sum(axis=-1)


def cosine_losses(vectors: jax.Array, similarity: jax.Array) -> jax.Array:
    """The squared difference of the cosine from a given similarity (the regression objective).

    Args:
        vectors: float32 [B, 2, D].
        similarity: float32 [B], what the cosine should be.
    """
    return jnp.square(cosines(vectors[:, 0], vectors[:, 1]) - similarity)


def contrastive_losses(vectors: jax.Array, similar: jax.Array, margin: float) -> jax.Array:
    """Similar pairs are drawn together, others are pushed apart up to a margin.

    With the distance d = 1 - cosine: d² / 2 for a similar pair, else max(0, margin - d)² / 2
    (Hadsell et al., 2006, "Dimensionality reduction by learning an invariant mapping").

    Args:
        vectors: float32 [B, 2, D].
        similar: float32 [B], 1 or 0.
        margin: the distance that is far enough.
    """
    distance = 1 - cosines(vectors[:, 0], vectors[:, 1])
    apart = jax.nn.relu(margin - distance)
    return 0.5 * (similar * jnp.square(distance) + (1 - similar) * jnp.square(apart))


def in_batch_losses(
    vectors: jax.Array, texts: jax.Array, is_pair: jax.Array, scale: float
) -> jax.Array:
    """Of all second texts of a batch, each first text is to find its own (multiple negatives).

    Cross-entropy over scale × cosine (Henderson et al., 2017, section 4.4). What is no wrong answer
    is left out: a second text that is the same as the right one or as the first text, or that
    belongs to the same first text.

    Args:
        vectors: float32 [B, 2, D].
        texts: int32 [B, 2], equal numbers for equal texts.
        is_pair: bool [B], False for rows that fill up the batch.
        scale: one over the temperature.
    """
    first, second = unit_length(vectors[:, 0]), unit_length(vectors[:, 1])
    scores = scale * jnp.einsum("BD,SD->BS", first, second)  # B × B
    same = (texts[:, None, :] == texts[None, :, :]).any(axis=-1)
    same |= texts[:, None, 0] == texts[None, :, 1]
    own = jnp.eye(len(texts), dtype=bool)
    wrong = ~same & is_pair[None, :]
    # The lowest finite number: minus infinity has no derivative where a row has nothing else.
    scores = jnp.where(own | wrong, scores, jnp.finfo(jnp.float32).min)
    return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.arange(len(texts)))
