"""What a decoder needs beside an encoder: cross-attention, and what layers keep between calls."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.models.attention_inputs import AttentionMask
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution


@struct.dataclass
class EncoderMemory:
    """The output of an encoder, for a decoder.

    Attributes:
        hidden: [B, S, D]; None where a cache has the keys and values of all layers.
        tokens: mask of its S tokens.
        states: the states in which recurrent layers end, [L, ...], with which those of a decoder
            begin; None: the layers are of another kind.
    """

    hidden: jax.Array | None
    tokens: AttentionMask
    states: "DecoderCache | None" = None

    def mask(self, tokens: AttentionMask) -> AttentionMask:
        """Which of the S tokens T tokens with their own mask see: all of the same segment."""
        return AttentionMask(tokens.query_ids, self.tokens.key_ids, self.tokens.key_positions)


@struct.dataclass
class KeyValueCache:
    """Keys and values of earlier tokens, for a decoder that computes token after token.

    Attributes:
        key: K, [B, N, S, H], where S is the largest number of tokens.
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
        """The cache with T more tokens: [B, N, T, H] twice, and int32 [B, T].

        Where they are more than S tokens in all, their values are NaN, and so is what attends to
        them: how many there were is known on the device alone.

        Raises:
            ValueError: T is larger than S.
        """
        count, size = key.shape[2], self.key.shape[2]
        if count > size:
            raise ValueError(f"{count} tokens do not fit in a cache of {size}; make a larger one")

        def put(old: jax.Array, new: jax.Array, axis: int) -> jax.Array:
            return jax.lax.dynamic_update_slice_in_dim(old, new, self.length, axis)

        # In place of overwriting the last tokens, as `put` would.
        value = jnp.where(self.length + count > size, jnp.nan, value)
        return dataclasses.replace(
            self,
            key=put(self.key, key, 2),
            value=put(self.value, value, 2),
            key_ids=put(self.key_ids, key_ids, 1),
            length=self.length + count,
        )

    def mask(self, tokens: AttentionMask) -> AttentionMask:
        """Which keys the last T tokens see: as `tokens`, their own mask, and none after them.

        A window counts the slots of the cache: padding stands before a prompt, not after it.

        Raises:
            ValueError: there are global tokens; of earlier tokens the cache does not know them.
        """
        if tokens.global_keys is not None or tokens.global_queries is not None:
            raise ValueError("attention with a cache has no global tokens; leave them out")
        positions = jnp.broadcast_to(jnp.arange(self.key_ids.shape[1]), self.key_ids.shape)  # BS
        count = tokens.key_ids.shape[1]
        return AttentionMask(
            tokens.query_ids,
            self.key_ids,
            positions,
            positions[:, :count] + self.length - count,
            causal=True,
            window=tokens.window,
        )

    def reordered(self, chosen: Callable[[jax.Array], jax.Array]) -> Self:
        """See `DecoderCache.reordered`."""
        return self._changed(lambda array, axis: chosen(array))

    def resized(self, size: int) -> Self:
        """See `DecoderCache.resized`."""

        def padded(array: jax.Array, axis: int) -> jax.Array:
            widths = [(0, 0)] * array.ndim
            widths[axis] = (0, size - array.shape[axis])
            return jnp.pad(array, widths)

        return self._changed(padded)

    def _changed(self, change: Callable[[jax.Array, int], jax.Array]) -> Self:
        """With changed arrays of rows; `change` takes the axis of the tokens, too."""
        key, value = jax.tree.map(lambda leaf: change(leaf, -2), (self.key, self.value))
        key_ids = jax.tree.map(lambda leaf: change(leaf, -1), self.key_ids)
        return dataclasses.replace(self, key=key, value=value, key_ids=key_ids)


@struct.dataclass
class RecurrentState:
    """The state of a recurrent layer after the last token of each row that is not padding.

    With `bidirectional` the first half of the D values is the forward state after the last token,
    the second half the backward state after the first token.

    Attributes:
        state: "hidden", h, and of an LSTM "cell", c: float32 [B, D]; of a "projected_lstm", which
            has two directions, the cell is [B, 2 F].
        length: int32 [], number of tokens so far.
    """

    state: dict[str, jax.Array]
    length: jax.Array

    @classmethod
    def empty(cls, config: EncoderConfig, rows: int) -> Self:
        """The state of one layer before the first token of B rows."""
        widths = {"hidden": config.hidden_size}
        if config.layer_kind == "projected_lstm":
            widths["cell"] = 2 * config.intermediate_size
        elif config.layer_kind == "lstm":
            widths["cell"] = config.hidden_size
        zeros = {name: jnp.zeros((rows, width)) for name, width in widths.items()}
        return cls(zeros, jnp.int32(0))

    def reordered(self, chosen: Callable[[jax.Array], jax.Array]) -> Self:
        """See `DecoderCache.reordered`."""
        return dataclasses.replace(self, state=jax.tree.map(chosen, self.state))

    def resized(self, size: int) -> Self:
        """Itself: a state has room for any number of tokens."""
        return self


@struct.dataclass
class MemoryKeyValues:
    """Keys and values of an encoder's output in a layer with cross-attention.

    Attributes:
        key: K, [B, N, S, H].
        value: V, [B, N, S, H].
    """

    key: jax.Array
    value: jax.Array


@struct.dataclass
class DecoderCache:
    """What a layer keeps between calls; stacked [L, ...] for all layers.

    Attributes:
        tokens: what a layer of its kind keeps of the earlier tokens of R rows: `KeyValueCache`, or
            `RecurrentState`.
        memory: keys and values of the encoder's output for cross-attention, once they are computed.
            They may have B rows, of which each serves R / B consecutive rows of tokens, such as the
            beams of one example.
    """

    tokens: Any
    memory: MemoryKeyValues | None = None

    @classmethod
    def empty(cls, config: EncoderConfig, execution: Execution, rows: int, size: int) -> Self:
        """The cache of all layers for B rows of at most S tokens."""
        if config.is_recurrent:
            layer = cls(RecurrentState.empty(config, rows))
        else:
            layer = cls(KeyValueCache.empty(config, execution, rows, size))
        count = config.num_hidden_layers
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), layer)

    def reordered(self, chosen: Callable[[jax.Array], jax.Array]) -> Self:
        """The cache of all layers for other rows of tokens.

        Args:
            chosen: the rows [L, R, ...] of an array of all rows of tokens, [L, R, ...]; without L
                where the leaves are arrays of each layer.
        """
        return dataclasses.replace(self, tokens=self.tokens.reordered(chosen))

    def resized(self, size: int) -> Self:
        """The cache of all layers with room for S tokens, at least as many as before."""
        return dataclasses.replace(self, tokens=self.tokens.resized(size))
