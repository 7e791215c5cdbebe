"""Sparse vectors of texts: a weight for each word of the vocabulary, most of them 0 (SPLADE).

    w_v = pool over the tokens t of log(1 + relu(z_tv)),   z: logits of the masked language model

The pooling is the sum (Formal et al., 2021, https://arxiv.org/abs/2107.05720, equation 1) or the
maximum (SPLADE v2, https://arxiv.org/abs/2109.10086, section 3.1). The description has the content
of the files of sentence-transformers 6, whose names the fields have.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.dual_encoder import Towers
from bert_jax.models.head import Head, heads_with
from bert_jax.models.heads.masked_lm import MaskedLanguageModelHead, vocabulary_logits
from bert_jax.models.vectors import StoredVectors

WORDS_AT_ONCE = 1024
"""The number of words whose logits are in memory: a third of the features of a feed-forward layer
of BERT-base, so that the head needs no more memory than a layer."""

_BEST_TOKEN = "best token"


def log_saturation(logits: jax.Array) -> jax.Array:
    """log(1 + relu(z)) of each logit z."""
    return jnp.log1p(jax.nn.relu(logits))


def double_log_saturation(logits: jax.Array) -> jax.Array:
    """log(1 + log(1 + relu(z))) of each logit z (https://arxiv.org/abs/2504.14839)."""
    return jnp.log1p(log_saturation(logits))


ACTIVATIONS = {"relu": log_saturation, "log1p_relu": double_log_saturation}
"""The weight of a word for a token, by the names of sentence-transformers."""

POOLING_STRATEGIES = ("max", "sum")


@dataclasses.dataclass(frozen=True)
class SparseVectors(StoredVectors):
    """How a model makes sparse vectors of texts; they are compared by their dot product.

    Attributes:
        pooling_strategy: one of `POOLING_STRATEGIES`.
        activation_function: one of `ACTIVATIONS`.
        max_active_dims: number of the largest weights that are kept; None: all.
    """

    method = "sparse_vectors"

    pooling_strategy: str = "max"
    activation_function: str = "relu"
    max_active_dims: int | None = None

    @property
    def heads(self) -> tuple[str, ...]:
        return heads_with("fills_masks")


def pooled_weights(
    vectors: jax.Array,
    table: jax.Array,
    bias: jax.Array,
    mask: jax.Array,
    pooling_strategy: str = "max",
    activation_function: str = "relu",
) -> jax.Array:
    """The weights of all words, float32 [B, V]; 0 for a row without tokens.

    Logits are computed for `WORDS_AT_ONCE` words after the other, in the backward pass too: there
    are never [B, T, V]. For the maximum, the backward pass knows the token of each word, and
    computes no logits again.

    Args:
        vectors: [B, T, I], see `MaskedLanguageModelHead.factors`.
        table: [V, I].
        bias: float32 [V].
        mask: bool [B, T], False for padding.
        pooling_strategy: one of `POOLING_STRATEGIES`.
        activation_function: one of `ACTIVATIONS`.
    """
    weight, words = ACTIVATIONS[activation_function], len(table)
    parts = -(-words // WORDS_AT_ONCE)
    padding = -words % parts
    table = jnp.pad(table, [(0, padding), (0, 0)])
    bias = jnp.pad(bias, (0, padding), constant_values=MASK_VALUE)

    def pooled(table: jax.Array, bias: jax.Array) -> jax.Array:
        logits = vocabulary_logits(vectors, table, bias)
        logits = jnp.where(mask[:, :, None], logits, MASK_VALUE)  # BTW
        return weight(logits).sum(axis=1) if pooling_strategy == "sum" else _maximum(logits)

    policy = jax.checkpoint_policies.save_only_these_names(_BEST_TOKEN)
    compute = jax.checkpoint(pooled, prevent_cse=False, policy=policy)
    # Each part has words of the whole table, so that a mesh that splits the words splits each part.
    tables = table.reshape(-1, parts, table.shape[1]).swapaxes(0, 1)
    weights = jax.lax.map(lambda part: compute(*part), (tables, bias.reshape(-1, parts).T))
    weights = weights.transpose(1, 2, 0).reshape(len(vectors), -1)[:, :words]  # BV
    return weights if pooling_strategy == "sum" else weight(weights)


def _maximum(logits: jax.Array) -> jax.Array:
    """[B, T, V] → [B, V], over the tokens; its gradient needs the first best tokens only.

    JAX's own gradient would read the logits.
    """
    # On a CPU, `argmax` takes longer than the product of the logits.
    is_best = logits == logits.max(axis=1, keepdims=True)
    position = jnp.arange(logits.shape[1])[:, None]
    best = jnp.where(is_best, position, len(position)).min(axis=1)  # BV
    return _value_at(logits, checkpoint_name(best, _BEST_TOKEN), position)


@jax.custom_vjp
def _value_at(logits: jax.Array, best: jax.Array, position: jax.Array) -> jax.Array:
    return logits.max(axis=1)


def _forward(logits: jax.Array, *positions: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return _value_at(logits, *positions), positions


def _backward(positions: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[Any, None, None]:
    best, position = positions
    return jnp.where(position == best[:, None], cotangent[:, None], 0), None, None


_value_at.defvjp(_forward, _backward)


class SparseEncoder(Towers):
    """The sparse vectors of texts, float32 [B, V], by the parameters of a `MaskedLMModel`.

    Attributes:
        pooling_strategy, activation_function: see `pooled_weights`.
    """

    pooling_strategy: str = "max"
    activation_function: str = "relu"

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def vectors(self, hidden: jax.Array, mask: jax.Array) -> jax.Array:
        factors = self.mlm_head.factors(hidden, self.encoder.word_embeddings())
        weights = pooled_weights(*factors, mask, self.pooling_strategy, self.activation_function)
        return weights[:, : self.config.vocab_size]


HEAD = Head()  # its parameters belong to the head of the masked language model
