"""Which tokens attend to which, in rows of one text and in packed rows of several.

Segment ids mean what they mean in JAX's flash attention: tokens of one row attend to each other
where their ids are equal. (The paper's segments, the sentences A and B of one text, are
`token_type_ids`.) In a packed row each text has an id, from 1; padding has 0.

Rows are packed in two ways. Pre-training packs its data, see `data.pretraining.packing`: its
batches come with `segment_ids`. Labelled tasks pack for the encoder alone, see `PackedRows`: what
comes before and after the encoder sees the batch as it was.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.dropout import ElementIndices


class SegmentIds(NamedTuple):
    """A query attends to the keys that have its id.

    So the [T, S] mask is never stored; it arises where scores are computed. Fused attention kernels
    take this form as well.

    Attributes:
        query: int32 [B, T], or [B, 1] where all queries of a row have the same id.
        key: int32 [B, S].
    """

    query: jax.Array
    key: jax.Array


class Tokens(NamedTuple):
    """The tokens of a batch as the layers read them, besides their vectors.

    Attributes:
        segment_ids: which tokens attend to which.
        indices: int32 [B, T], the index of each token in the batch; dropout draws by it.
        positions: int32 [B, T], the position of each token in its row of the batch.
    """

    segment_ids: SegmentIds
    indices: jax.Array
    positions: jax.Array

    @classmethod
    def in_batch_order(cls, segment_ids: SegmentIds) -> "Tokens":
        """Tokens that are computed in the rows of the batch, not in packed rows."""
        rows, length = segment_ids.key.shape
        indices = jnp.arange(rows * length, dtype=jnp.int32).reshape(rows, length)
        return cls(segment_ids, indices, indices % length)


class AttentionContext(NamedTuple):
    """Queries and keys as attention reads them, besides their vectors.

    The leading axes are [B, 1] or [B, N].

    Attributes:
        query_segment_ids: int32 [..., T] or [..., 1]; a query sees the keys that have its id.
        key_segment_ids: int32 [..., S].
        query_indices: int32 [..., T], the index of each query of each head; dropout draws by it.
        key_positions: int32 [..., S], the position of each key in its row of the batch.
    """

    query_segment_ids: jax.Array
    key_segment_ids: jax.Array
    query_indices: jax.Array
    key_positions: jax.Array

    @classmethod
    def from_tokens(cls, tokens: Tokens, num_heads: int) -> "AttentionContext":
        """The context of self-attention with N heads."""
        indices = tokens.indices[:, None] * num_heads + jnp.arange(num_heads)[:, None]  # BNT
        query, key = tokens.segment_ids
        return cls(query[:, None], key[:, None], indices, tokens.positions[:, None])

    @property
    def visible(self) -> jax.Array:
        """Whether a query sees a key, bool [..., T, S]."""
        return self.query_segment_ids[..., :, None] == self.key_segment_ids[..., None, :]

    @property
    def dropout_indices(self) -> ElementIndices:
        """The indices of the attention weights."""
        return ElementIndices(self.query_indices[..., :, None], self.key_positions[..., None, :])


class PackedRows(NamedTuple):
    """Where the tokens of a batch [B, T] stand in R packed rows of U tokens, and back.

    No text sees another, and dropout draws by the token's index in the batch: results are those of
    the batch itself, but for padding, whose vectors come back as zeros.

    Attributes:
        pack_indices: int32 [R, U], the index b · T + t of the token at each place; -1: none.
        unpack_indices: int32 [B, T], the index r · U + u of each token's place; -1: padding.
    """

    pack_indices: jax.Array
    unpack_indices: jax.Array

    def pack(self, hidden: jax.Array) -> jax.Array:
        """[B, T, D] → [R, U, D]."""
        return gather_or_zero(hidden, self.pack_indices, self.unpack_indices)

    def unpack(self, hidden: jax.Array) -> jax.Array:
        """[R, U, D] → [B, T, D]."""
        return gather_or_zero(hidden, self.unpack_indices, self.pack_indices)

    def tokens(self) -> Tokens:
        """The tokens of the packed rows; the segment id of a text is its row in the batch + 1."""
        length = self.unpack_indices.shape[1]
        ids = jnp.where(self.pack_indices < 0, 0, self.pack_indices // length + 1)
        return Tokens(SegmentIds(ids, ids), self.pack_indices, self.pack_indices % length)


@jax.custom_vjp
def gather_or_zero(values: jax.Array, indices: jax.Array, inverse: jax.Array) -> jax.Array:
    """The vectors [..., D] at flat `indices`; zeros at -1.

    No vector is gathered twice, so the gradient is gathered too, by the `inverse` indices: JAX
    alone would scatter-add it token by token.
    """
    flat = values.reshape(-1, values.shape[-1])
    return jnp.where((indices >= 0)[..., None], flat[indices], 0)


def _forward(values: jax.Array, indices: jax.Array, inverse: jax.Array) -> tuple[jax.Array, Any]:
    return gather_or_zero(values, indices, inverse), (indices, inverse)


def _backward(saved: Any, cotangent: jax.Array) -> tuple[jax.Array, None, None]:
    indices, inverse = saved
    return gather_or_zero(cotangent, inverse, indices), None, None


gather_or_zero.defvjp(_forward, _backward)
