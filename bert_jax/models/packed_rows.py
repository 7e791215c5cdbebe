"""Tokens of rows with one text, and of packed rows with several texts that do not see each other.

Rows are packed in two ways. Pre-training packs its data, see `data.pretraining.packing`: its
batches come with `segment_ids`. Labelled tasks pack for the encoder only, see `PackedRows`: code
before and after the encoder sees the unpacked batch.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.models.attention_inputs import AttentionDropout, AttentionMask
from bert_jax.models.convolution import Convolution
from bert_jax.models.decoding import EncoderMemory
from bert_jax.models.global_tokens import GlobalTokens


@struct.dataclass
class EncoderInputs:
    """Tokens that an encoder computes; models with further inputs have them in a subclass.

    A packed row holds several texts that do not see each other: their tokens have different
    `segment_ids`, and `position_ids` that begin at 0 in each text.

    Attributes:
        input_ids: int32 [B, T]; None with `pixel_values`.
        token_type_ids: int32 [B, T], first or second sentence; None for all 0.
        attention_mask: int32 or bool [B, T], 0 for tokens that no token sees, such as padding; None
            if there are none. These tokens see all visible ones.
        position_ids: int32 [B, T]; None for 0 … T-1, or with `positions_after_padding` the number
            of each token among the tokens that are not padding.
        segment_ids: int32 [B, T], number of the text in its row that a token belongs to, from 1,
            and 0 for padding; None if each row is one text.
        next_sentence_positions: int32 [B, K], positions of the [CLS] of K texts per row; None for 0
            only.
        packed_rows: if set, the layers compute rows without `segment_ids` in packed rows; then
            their hidden states, attention weights and value relations are not available.
        row_indices: int32 [B], index of each row in the global batch, so that the encoder's dropout
            masks do not depend on micro-batches; None for 0 … B-1.
        global_attention_mask: int32 or bool [B, T], 1 for tokens that see all others, and that all
            others see, in spite of a window (Longformer); None: the head says which.
        most_global_tokens: the most of them in a row; None: unknown.
        pixel_values: float32 [B, height, width, channels], images; None: the model reads text.
        characters: int32 [B, T, Y], the characters of each token, from 1 on, and 0 for none, for
            models that read these in place of `input_ids`, see `models.character_cnn`; None for
            all others.
    """

    input_ids: jax.Array = struct.field(default=None)
    token_type_ids: jax.Array | None = None
    attention_mask: jax.Array | None = None
    position_ids: jax.Array | None = None
    segment_ids: jax.Array | None = None
    next_sentence_positions: jax.Array | None = None
    packed_rows: "PackedRows | None" = None
    row_indices: jax.Array | None = None
    global_attention_mask: jax.Array | None = None
    most_global_tokens: int | None = struct.field(pytree_node=False, default=None)
    pixel_values: jax.Array | None = None
    characters: jax.Array | None = None

    @classmethod
    def from_call(cls, *arrays: Any, **named: Any) -> Self:
        """The inputs of a call of a model: a record, or its arrays by position or name.

        Raises:
            TypeError: the record has no such array.
        """
        if len(arrays) == 1 and isinstance(record := arrays[0], EncoderInputs):
            if not isinstance(record, cls):  # one without the arrays of the head
                record = cls(**vars(record))
            return dataclasses.replace(record, **named)
        return cls(*arrays, **named)

    @property
    def leading(self) -> tuple[int, ...]:
        """B, and the K texts of an example where it has several."""
        images = self.pixel_values
        return self.input_ids.shape[:-1] if images is None else images.shape[:1]

    @property
    def visible(self) -> jax.Array:
        """The `attention_mask`, with ones if it is None."""
        mask = self.attention_mask
        return jnp.ones_like(self.input_ids) if mask is None else mask

    def tokens(self) -> "Tokens":
        """The tokens of rows that are not packed for the layers."""
        ids, segment_ids = self.input_ids, self.segment_ids
        query_ids = jnp.ones_like(ids[:, :1]) if segment_ids is None else segment_ids
        key_ids = jnp.broadcast_to(query_ids, ids.shape)
        if self.attention_mask is not None:
            key_ids = jnp.where(self.attention_mask.astype(bool), key_ids, 0)
        tokens = Tokens.in_batch_order(query_ids, key_ids, self.row_indices)
        all_visible = self.attention_mask is None and segment_ids is None
        return tokens._replace(mask=dataclasses.replace(tokens.mask, all_visible=all_visible))

    def packed(self, ids: jax.Array) -> jax.Array:
        """Int32 [B, T, …] in the rows that the layers compute."""
        return ids if self.packed_rows is None else self.packed_rows.pack(ids)

    def global_tokens(self) -> GlobalTokens | None:
        """The global tokens of the rows that the layers compute; padding is none."""
        if self.global_attention_mask is None:
            return None
        is_global, most = self.global_attention_mask * self.visible, self.most_global_tokens
        if self.packed_rows is not None:
            is_global, most = self.packed_rows.pack(is_global.astype(jnp.int32)), None
        return GlobalTokens.from_mask(is_global != 0, most)

    def as_rows(self) -> Self:
        """The inputs of B examples with K texts each, [B, …, T], as B · K rows of one text."""
        axes, texts, indices = len(self.leading), math.prod(self.leading[1:]), self.row_indices
        if indices is not None:
            indices = (texts * indices[:, None] + jnp.arange(texts)).reshape(-1)
        names = (
            *("input_ids", "token_type_ids", "attention_mask", "position_ids"),
            *("global_attention_mask", "characters"),
        )
        arrays = {name: getattr(self, name) for name in names}
        rows = jax.tree.map(lambda array: array.reshape(-1, *array.shape[axes:]), arrays)
        return dataclasses.replace(self, **rows, row_indices=indices)


class Tokens(NamedTuple):
    """The inputs of the layers that describe tokens, apart from their vectors.

    Attributes:
        mask: which tokens attend to which, [B, ...].
        indices: int32 [B, T], index of each token in the batch, for the dropout masks.
        bias: added to the scores of self-attention, see `AttentionInputs`; None: 0.
        memory: for layers with cross-attention; None: there are none.
        global_tokens: tokens that see all others, see `global_tokens`; None: there are none.
        rotations: of rotary positions for global and local layers, [B, K, 2, T, H / 2], see
            `rotary_positions`; None: positions are of another kind.
        relative: embeddings of relative positions, [M, D], see `disentangled_attention`; None:
            there are none.
        convolution: what is added to the output of the first layer; None: nothing.
    """

    mask: AttentionMask
    indices: jax.Array
    bias: jax.Array | None = None
    memory: EncoderMemory | None = None
    rotations: jax.Array | None = None
    relative: jax.Array | None = None
    convolution: Convolution | None = None
    global_tokens: GlobalTokens | None = None

    @property
    def is_visible(self) -> jax.Array:
        """Whether any token sees each one, bool [B, T]."""
        return self.mask.key_ids > 0

    @property
    def has_shared_arrays(self) -> bool:
        """Whether all rows share one of the arrays, without an axis of rows."""
        return any(each is not None for each in (self.bias, self.relative, self.convolution))

    def masked(self) -> "Tokens":
        """The tokens with a mask by which those that no token sees see no token, either."""
        mask = self.mask
        if mask.all_visible:
            return self
        query_ids = jnp.where(self.is_visible, mask.key_ids, -1)
        return self._replace(mask=dataclasses.replace(mask, query_ids=query_ids))

    @classmethod
    def in_batch_order(
        cls, query_ids: jax.Array, key_ids: jax.Array, row_indices: jax.Array | None = None
    ) -> "Tokens":
        """Tokens in B rows of a batch, for ids see `AttentionMask`.

        `row_indices`, int32 [B], are the indices of the rows in the whole batch; None: 0 … B-1.
        """
        rows, length = key_ids.shape
        indices = jnp.arange(rows * length, dtype=jnp.int32).reshape(rows, length)
        if row_indices is not None:
            indices = row_indices[:, None] * length + jnp.arange(length, dtype=jnp.int32)
        return cls(AttentionMask(query_ids, key_ids, indices % length), indices)

    def causal(self) -> "Tokens":
        """The tokens with a mask by which none sees a later one."""
        mask = self.mask
        return self._replace(
            mask=dataclasses.replace(mask, causal=True, query_positions=mask.key_positions)
        )

    def dropout(self, key: jax.Array, num_heads: int, rate: float) -> AttentionDropout:
        """Dropout on the attention weights of N heads."""
        indices = self.indices[:, None] * num_heads + jnp.arange(num_heads)[:, None]  # BNT
        return AttentionDropout(key, indices, rate)


class PackedRows(NamedTuple):
    """The positions of the tokens of B rows of T tokens in R packed rows of U tokens, and back.

    Texts do not see each other, and dropout masks depend on the token's index in the batch: results
    equal the results of the unpacked batch, except that padding has vectors of zeros.

    A batch has G groups of B rows, and each group is packed separately: where the groups are on
    different devices, packing moves nothing between them.

    Attributes:
        pack_indices: int32 [G, R, U], index b · T + t, in its group, of the token at each packed
            position; -1: none.
        unpack_indices: int32 [G, B, T], index r · U + u, in its group, of each token's packed
            position; -1: padding.
    """

    pack_indices: jax.Array
    unpack_indices: jax.Array

    @classmethod
    def from_batch(cls, batch: Mapping[str, jax.Array]) -> "PackedRows | None":
        """The `pack_indices` and `unpack_indices`, [..., T], of a batch; None if it has none."""
        if "pack_indices" not in batch:
            return None
        pack_indices, unpack_indices = batch["pack_indices"], batch["unpack_indices"]
        shape = (len(pack_indices), -1, unpack_indices.shape[-1])
        return cls(pack_indices, unpack_indices.reshape(shape))

    def pack(self, ids: jax.Array) -> jax.Array:
        """Int32 [G · B, T] → [G · R, U], and [G · B, T, 3] → [G · R, U, 3]; 0: no token."""
        wide = ids.reshape(*ids.shape[:2], -1)
        packed = gather_or_zero(wide, self.pack_indices, self.unpack_indices)
        return packed.reshape(*packed.shape[:2], *ids.shape[2:])

    def unpack(self, hidden: jax.Array) -> jax.Array:
        """[G · R, U, D] → [G · B, T, D]."""
        return gather_or_zero(hidden, self.unpack_indices, self.pack_indices)

    def tokens(self, row_indices: jax.Array | None = None) -> Tokens:
        """The tokens of the packed rows; the segment id of a text is its row in the group + 1.

        For `row_indices`, int32 [G · B], see `EncoderInputs`.
        """
        groups, rows, length = self.unpack_indices.shape
        if row_indices is None:
            row_indices = jnp.arange(groups * rows, dtype=jnp.int32)
        row_in_group = self.pack_indices.reshape(groups, -1) // length  # -1: no token
        in_batch = jnp.take_along_axis(
            row_indices.reshape(groups, rows), jnp.maximum(row_in_group, 0), axis=1
        )
        shape = (-1, self.pack_indices.shape[-1])  # [G · R, U]
        ids, in_batch = (row_in_group + 1).reshape(shape), in_batch.reshape(shape)
        positions = self.pack_indices.reshape(shape) % length
        return Tokens(AttentionMask(ids, ids, positions), in_batch * length + positions)


@jax.custom_vjp
def gather_or_zero(values: jax.Array, indices: jax.Array, inverse: jax.Array) -> jax.Array:
    """The vectors at flat indices within each of G groups; zeros at -1.

    No vector is gathered twice, so the gradient is a gather as well, with the `inverse` indices.
    JAX's own gradient would be a scatter-add, token by token.

    Args:
        values: [..., D], the vectors of one group after the other.
        indices: int32 [G, R, U], or [G, B, T].
        inverse: int32 [G, ...], the target of each vector of `values`; -1: none.

    Returns:
        [G · R, U, D], or [G · B, T, D].
    """
    groups, rows, length = indices.shape
    width = values.shape[-1]
    in_groups = values.reshape(groups, -1, width)
    gathered = jnp.take_along_axis(in_groups, indices.reshape(groups, -1, 1), axis=1)
    gathered = gathered.reshape(groups * rows, length, width)
    return jnp.where(indices.reshape(groups * rows, length, 1) >= 0, gathered, 0)


def _forward(values: jax.Array, indices: jax.Array, inverse: jax.Array) -> tuple[jax.Array, Any]:
    return gather_or_zero(values, indices, inverse), (indices, inverse)


def _backward(saved: Any, cotangent: jax.Array) -> tuple[jax.Array, None, None]:
    indices, inverse = saved
    return gather_or_zero(cotangent, inverse, indices), None, None


gather_or_zero.defvjp(_forward, _backward)
