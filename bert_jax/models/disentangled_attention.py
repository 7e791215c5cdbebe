"""DeBERTa's disentangled attention: contents and relative positions are vectors of their own.

The score of the query at position t and the key at position s is a sum of products:

    Qₜ · Kₛ  +  Qₜ · P(b)  +  Kₛ · R(b)        b: the bucket of the distance t - s

The keys P and queries R of positions are projections of the bucket's embedding. The second term is
"c2p" (content to position), the third "p2c"; the factor of all is 1 / sqrt(3 H). Sources: He et
al., 2020 (https://arxiv.org/abs/2006.03654), section 3.1; Hugging Face transformers,
models/deberta_v2/modeling_deberta_v2.py.
"""

from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import scores
from bert_jax.models.layers import dense, kernel_init, layer_norm


class RelativeEmbeddings(nn.Module):
    """The embeddings of the relative positions, normalised with `norm_rel_ebd`.

    All layers share them.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self) -> jax.Array:
        """[M, D]: the rows of the buckets from -M / 2 to M / 2 - 1."""
        config = self.config
        table = nn.Embed(
            2 * span(config), config.hidden_size, embedding_init=kernel_init(config), name="table"
        ).embedding
        if config.norm_rel_ebd == "layer_norm":
            return layer_norm(config, self.execution, "layer_norm")(table)
        return table.astype(self.execution.dtype)


class PositionScores(nn.Module):
    """The terms of the scores with positions, in one layer.

    Positions are projected by the linear layers of the tokens with `share_att_key`, otherwise by
    their own.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        embeddings: jax.Array,
        projections: Mapping[str, Callable[[jax.Array], jax.Array]],
        deterministic: bool,
    ) -> jax.Array:
        """Q and K [B, N, T, H] and embeddings [M, D] → float32 [B, N, T, T], scaled.

        Args:
            query: of the tokens.
            key: of the tokens.
            embeddings: see `RelativeEmbeddings`.
            projections: linear layers of "query" and "key" of the tokens, [..., D] → [..., N, H].
            deterministic: False for training, with dropout on the embeddings.
        """
        config, length = self.config, query.shape[2]
        rows = rows_of_distances(config, length)  # of the distances from 1 - T to T - 1
        drop = Dropout(config.hidden_dropout_prob, name="dropout")
        embeddings = drop(embeddings, deterministic=deterministic)[rows[0] : rows[-1] + 1]
        rows = rows - rows[0]

        def project(name: str) -> jax.Array:
            shape = (config.num_attention_heads, config.head_dim)
            is_shared = config.share_att_key
            layer = projections[name] if is_shared else dense(config, self.execution, shape, name)
            return layer(embeddings).swapaxes(0, 1)  # NMH

        total = jnp.zeros((), jnp.float32)
        if "c2p" in config.position_terms:
            total += distance_scores(query, project("key")[:, rows[::-1]])
        if "p2c" in config.position_terms:
            total += distance_scores(key, project("query")[:, rows]).swapaxes(2, 3)
        return total * config.attention_scale


def distance_scores(vectors: jax.Array, positions: jax.Array) -> jax.Array:
    """The products of token i with the positions of its distances to all tokens j.

    All products are computed, and those of each token are then moved to their places. A gather of
    single products, of buckets instead of distances, takes five times as long for 128 tokens on a
    CPU, and so does its gradient; for 512 tokens both take as long.

    Args:
        vectors: [B, N, T, H].
        positions: [N, 2 T - 1, H], of j - i from 1 - T to T - 1.

    Returns:
        float32 [B, N, T, T].
    """
    *leading, length, _ = vectors.shape
    positions = jnp.pad(positions, ((0, 0), (0, 1), (0, 0)))
    products = jax.vmap(scores, (1, 0), 1)(vectors, positions)  # [B, N, T, 2 T]
    # Token i needs the T columns from T - 1 - i on, which begin at (2 T - 1) i + T - 1 of all
    # products: in rows of 2 T - 1 columns from there on, they are below each other.
    start, width = length - 1, 2 * length - 1
    flat = products.reshape(*leading, -1)[..., start : start + length * width]
    return flat.reshape(*leading, length, width)[..., :length]


def span(config: EncoderConfig) -> int:
    """M / 2, the number of buckets to one side."""
    return config.position_buckets if config.position_buckets > 0 else config.distances


def rows_of_distances(config: EncoderConfig, length: int) -> np.ndarray:
    """The rows of the table for the distances from 1 - T to T - 1, int64 [2 T - 1], growing."""
    distances = np.arange(1 - length, length)
    if config.position_buckets > 0:
        distances = bucket_of(distances, config.position_buckets, config.distances)
    return np.clip(distances + span(config), 0, 2 * span(config) - 1)


def bucket_of(distances: np.ndarray, buckets: int, count: int) -> np.ndarray:
    """The bucket of each distance q - k, of the same sign, int64.

    Half of the buckets are for one distance each; the others grow with its logarithm, the last one
    up to the longest of `count` distances. The logarithms are of float32, as in transformers, since
    rounding decides where a distance is at the limit of a bucket.
    """
    exact = buckets // 2
    longest = np.float32((count - 1) / exact)
    ratio = np.maximum(abs(distances), exact).astype(np.float32) / np.float32(exact)
    growth = np.log(ratio) / np.log(longest) * np.float32(exact - 1)
    far = np.sign(distances) * (np.ceil(growth).astype(np.int64) + exact)
    return np.where(abs(distances) <= exact, distances, far)
