"""Attention within a window, at a cost that grows with T times the window and not with T².

The tokens are split into blocks as long as the window reaches to one side: the queries of a block
see keys of it and of the two beside it (Longformer, https://arxiv.org/abs/2004.05150, appendix A),
and those of global tokens. Each block becomes a row of a batch, which any kernel computes.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import AttentionInputs

# The segment id of keys before the first and after the last token: no query has it.
_NO_SEGMENT = -1


def attend_in_blocks(
    attend: Callable[[AttentionInputs], jax.Array],
    inputs: AttentionInputs,
    places: jax.Array | None = None,
) -> jax.Array:
    """Attention with a window, [B, N, T, H].

    Tokens with the same segment id are in the order of their positions, without a bias. A query
    that sees no key attends to all near it equally.

    Args:
        attend: computes attention.
        inputs: its inputs; the window of the mask is set.
        places: int32 [B, G], the positions of all `global_keys` of the mask, T for none; None if it
            has no global keys.
    """
    *leading, length, width = inputs.query.shape
    assert inputs.mask.window is not None
    assert inputs.bias is None
    size = max(inputs.mask.window, 1)
    if length <= 3 * size:
        return attend(inputs)
    blocks = -(-length // size)
    in_blocks = _in_blocks(inputs, size)
    if places is not None:
        in_blocks = _with_columns(in_blocks, inputs, places, size)
    output = attend(in_blocks)  # [B · K, N, R, H]
    output = output.reshape(leading[0], blocks, leading[1], size, width).swapaxes(1, 2)
    return output.reshape(*leading, blocks * size, width)[:, :, :length]


def _in_blocks(inputs: AttentionInputs, size: int) -> AttentionInputs:
    """The inputs with K blocks of R tokens of each row as rows."""
    mask, dropout = inputs.mask, inputs.dropout
    query_ids = jnp.broadcast_to(mask.query_ids, mask.key_ids.shape)
    if dropout is not None:
        indices = _blocks(dropout.query_indices, size)
        dropout = dataclasses.replace(dropout, query_indices=indices)
    return dataclasses.replace(
        inputs,
        query=_blocks(inputs.query, size),
        key=_blocks(inputs.key, size, around=1),
        value=_blocks(inputs.value, size, around=1),
        mask=dataclasses.replace(
            mask,
            query_ids=_blocks(query_ids, size),
            query_positions=_blocks(mask.key_positions, size),
            key_ids=_blocks(mask.key_ids, size, around=1, outside=_NO_SEGMENT),
            key_positions=_blocks(mask.key_positions, size, around=1),
        ),
        dropout=dropout,
    )


def _with_columns(
    blocks: AttentionInputs, inputs: AttentionInputs, places: jax.Array, size: int
) -> AttentionInputs:
    """The blocks with the keys at some positions, int32 [B, G], after those of each block."""
    mask, length = inputs.mask, inputs.key.shape[2]
    assert mask.global_keys is not None
    count = len(blocks.key) // len(inputs.key)
    indices = jnp.minimum(places, length - 1)[:, None]  # B1G

    def joined(near: jax.Array, array: jax.Array, is_key: jax.Array | None = None) -> jax.Array:
        """[B · K, N, 3 R, ...] and [B, N, T, ...] → [B · K, N, 3 R + G, ...]."""
        taken = jnp.take_along_axis(
            array, indices.reshape(*indices.shape, *[1] * (array.ndim - 3)), axis=2
        )
        if is_key is not None:
            taken = jnp.where(is_key, taken, _NO_SEGMENT)
        return jnp.concatenate([near, jnp.repeat(taken, count, axis=0)], axis=2)

    # A global key near a query counts once.
    is_column = _blocks(mask.global_keys, size, around=1)
    near_ids = jnp.where(is_column, _NO_SEGMENT, blocks.mask.key_ids)
    width = near_ids.shape[-1]
    key_ids = joined(near_ids, mask.key_ids, (places < length)[:, None])
    return dataclasses.replace(
        blocks,
        key=joined(blocks.key, inputs.key),
        value=joined(blocks.value, inputs.value),
        mask=dataclasses.replace(
            blocks.mask,
            key_ids=key_ids,
            key_positions=joined(blocks.mask.key_positions, mask.key_positions),
            global_keys=jnp.broadcast_to(jnp.arange(key_ids.shape[-1]) >= width, key_ids.shape),
        ),
    )


def _blocks(array: jax.Array, size: int, around: int = 0, outside: int = 0) -> jax.Array:
    """[B, N, T, ...] → [B · K, N, (2A + 1) R, ...]: each block between A others on each side.

    A is `around`; outside of the T tokens the value is `outside`.
    """
    rows, heads, length, *rest = array.shape
    widths = [(0, 0)] * array.ndim
    widths[2] = (around * size, around * size + -length % size)
    padded = jnp.pad(array, widths, constant_values=outside).reshape(rows, heads, -1, size, *rest)
    count = padded.shape[2] - 2 * around
    near = [padded[:, :, first : first + count] for first in range(2 * around + 1)]
    joined = jnp.concatenate(near, axis=3).swapaxes(1, 2)  # [B, K, N, …]
    return joined.reshape(rows * count, heads, *joined.shape[3:])


def global_every(are_global: Sequence[bool]) -> int | None:
    """The `global_attn_every_n_layers` by which these layers alone are global; None: there is none.

    It is as small as possible: 1 for a single layer.
    """
    count = len(are_global)
    patterns = ([layer % n == 0 for layer in range(count)] for n in range(1, count + 1))
    return next((n for n, each in enumerate(patterns, 1) if each == list(are_global)), None)
