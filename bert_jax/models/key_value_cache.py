"""The keys and values of earlier tokens, for a decoder that computes token after token."""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.models.attention_inputs import AttentionMask
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.packed_rows import Tokens


@struct.dataclass
class KeyValueCache:
    """Keys and values of the tokens that a decoder has seen; S is the largest number of them.

    Attributes:
        key: K, [B, N, S, H].
        value: V, [B, N, S, H].
        key_ids: int32 [B, S], segment ids, see `AttentionMask`; 0 after the last token.
        length: int32 [], number of tokens so far.
    """

    key: jax.Array
    value: jax.Array
    key_ids: jax.Array
    length: jax.Array

    @classmethod
    def empty(cls, config: EncoderConfig, execution: Execution, rows: int, size: int) -> Self:
        """The cache of one layer for B rows of at most S tokens."""
        shape = (rows, config.num_attention_heads, size, config.head_dim)
        zeros = jnp.zeros(shape, execution.dtype)
        return cls(zeros, zeros, jnp.zeros((rows, size), jnp.int32), jnp.int32(0))

    def append(self, key: jax.Array, value: jax.Array, key_ids: jax.Array) -> Self:
        """The cache with T more tokens: [B, N, T, H] twice, and int32 [B, T]."""

        def put(old: jax.Array, new: jax.Array, axis: int) -> jax.Array:
            return jax.lax.dynamic_update_slice_in_dim(old, new, self.length, axis)

        return dataclasses.replace(
            self,
            key=put(self.key, key, 2),
            value=put(self.value, value, 2),
            key_ids=put(self.key_ids, key_ids, 1),
            length=self.length + key.shape[2],
        )

    def mask(self, tokens: Tokens) -> AttentionMask:
        """Which keys the last T tokens see: those of their texts that are not after them."""
        rows, size = self.key_ids.shape
        count = tokens.indices.shape[1]
        positions = jnp.arange(size, dtype=jnp.int32)
        return AttentionMask(
            tokens.mask.query_ids,
            self.key_ids,
            jnp.broadcast_to(positions, (rows, size)),
            jnp.broadcast_to(positions[:count] + self.length - count, (rows, count)),
            causal=True,
        )
