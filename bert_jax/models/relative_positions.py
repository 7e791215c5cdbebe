"""T5's positions: a learned bias of the attention scores by the distance of two tokens.

Sources: Raffel et al., 2020 (https://arxiv.org/abs/1910.10683), section 2.1; Hugging Face
transformers, models/t5/modeling_t5.py.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.layers import initial_deviation


class RelativePositions(nn.Module):
    """The bias of each head, from a table with a row for each bucket of distances.

    All layers share it.
    """

    config: EncoderConfig

    @nn.compact
    def __call__(self, query_positions: jax.Array, key_positions: jax.Array) -> jax.Array:
        """Int32 [T] and [S] → float32 [1, N, T, S]."""
        config = self.config
        buckets = config.relative_attention_num_buckets
        deviation = initial_deviation(config, "relative_positions", config.hidden_size)
        init = nn.initializers.normal(deviation)
        heads = config.num_attention_heads
        table = nn.Embed(buckets, heads, embedding_init=init, name="table").embedding
        distances = key_positions[None, :] - query_positions[:, None]  # TS
        chosen = bucket_of(
            distances,
            buckets,
            config.relative_attention_max_distance,
            is_causal=config.is_causal,
        )
        return jnp.take(table, chosen, axis=0).transpose(2, 0, 1)[None]


def bucket_of(
    distances: jax.Array, buckets: int, max_distance: int, *, is_causal: bool
) -> jax.Array:
    """The bucket of each distance from a query to a key, int32 of any shape.

    Half of the buckets are for one distance each; the others grow with its logarithm up to
    `max_distance`, and the last one has all longer distances. In an encoder, keys after the query
    have the second half of all buckets; a causal decoder has none of them.
    """
    start = jnp.zeros_like(distances)
    if is_causal:
        distances = jnp.maximum(-distances, 0)
    else:
        buckets //= 2
        start = jnp.where(distances > 0, buckets, 0)
        distances = abs(distances)
    exact = buckets // 2
    growth = jnp.log(jnp.maximum(distances, 1) / exact) / math.log(max_distance / exact)
    large = exact + (growth * (buckets - exact)).astype(jnp.int32)
    return start + jnp.where(distances < exact, distances, jnp.minimum(large, buckets - 1))
