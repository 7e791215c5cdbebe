"""Global tokens: in a layer with a window they see all tokens, and all tokens see them.

A global token has queries, keys and values of its own projections, by which it sees the others; the
others see it by the ordinary ones. Source: Longformer (Beltagy et al., 2020,
https://arxiv.org/abs/2004.05150), section 3.1; Hugging Face transformers, modeling_longformer.py.

Up to G global tokens of a row are gathered, so that the cost grows with T · (window + G). Where a
row may have more, and has, all its tokens are compared with all, some queries at a time.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.layers import dense
from bert_jax.models.local_attention import attend_in_blocks

MOST_GATHERED = 128
"""G where the number is unknown: the tokens of a long question."""

# The queries that are compared with all keys at a time.
_QUERIES_IN_TURN = 256

Attend = Callable[[AttentionInputs], jax.Array]


@struct.dataclass
class GlobalTokens:
    """The global tokens of rows.

    Attributes:
        is_global: bool [B, T].
        places: int32 [B, G], the positions of the first G in a row; T where a row has fewer.
        has_all: whether no row can have more than G.
    """

    is_global: jax.Array
    places: jax.Array
    has_all: bool = struct.field(pytree_node=False)

    @classmethod
    def from_mask(cls, is_global: jax.Array, most: int | None = None) -> "GlobalTokens":
        """The tokens, bool [B, T], of which a row has at most `most`; None: unknown."""
        length = is_global.shape[1]
        count = min(MOST_GATHERED if most is None else most, length)
        after = jnp.where(is_global, length - jnp.arange(length), 0)
        places = length - jax.lax.top_k(after, count)[0]
        return cls(is_global, places, has_all=count == (length if most is None else most))


def global_tokens_of_task(
    kind: str, input_ids: jax.Array, separator: int | None
) -> tuple[jax.Array, int | None]:
    """The tokens that are global in a task, bool [B, T], and the most in a row (None: unknown).

    Args:
        kind: "first"; "question", the tokens before the first separator; or "choice", those after
            the separators behind the first text.
        input_ids: int32 [B, T].
        separator: id of the separator.
    """
    places = jnp.arange(input_ids.shape[1])
    if kind == "first":
        return jnp.broadcast_to(places == 0, input_ids.shape), 1
    first = jnp.argmax(input_ids == separator, axis=1)[:, None]
    return (places < first if kind == "question" else places > first + 1), None


class GlobalHeads(NamedTuple):
    """Queries, keys and values by which global tokens see others, [B, N, T, H]."""

    query: jax.Array
    key: jax.Array
    value: jax.Array


class GlobalProjections(nn.Module):
    """The linear layers that make `GlobalHeads`."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array) -> GlobalHeads:
        """[B, T, D] → three [B, N, T, H]."""
        heads = (self.config.num_attention_heads, self.config.head_dim)

        def project(name: str) -> jax.Array:
            return dense(self.config, self.execution, heads, name)(hidden).swapaxes(1, 2)

        return GlobalHeads(*map(project, GlobalHeads._fields))


def attend_with_global_tokens(
    attend: Attend, inputs: AttentionInputs, heads: GlobalHeads, tokens: GlobalTokens
) -> jax.Array:
    """Attention with a window and global tokens, [B, N, T, H].

    Args:
        attend: computes attention.
        inputs: inputs of the tokens that are not global; the window of the mask is set.
        heads: of the global tokens.
        tokens: the global tokens.
    """
    near = dataclasses.replace(
        inputs, mask=dataclasses.replace(inputs.mask, global_keys=tokens.is_global[:, None])
    )
    far = dataclasses.replace(
        inputs,
        **heads._asdict(),
        mask=dataclasses.replace(inputs.mask, window=None, query_positions=None),
    )
    is_global = tokens.is_global[:, None, :, None]

    def gathered(near: AttentionInputs, far: AttentionInputs) -> jax.Array:
        output = attend(_queries_at(far, tokens.places))  # BNGH
        ranks = jnp.clip(jnp.cumsum(tokens.is_global, axis=1) - 1, 0, output.shape[2] - 1)
        output = jnp.take_along_axis(output, ranks[:, None, :, None], axis=2)
        return jnp.where(is_global, output, attend_in_blocks(attend, near, tokens.places))

    def ungathered(near: AttentionInputs, far: AttentionInputs) -> jax.Array:
        return jnp.where(is_global, _in_turn(attend, far), _in_turn(attend, near))

    if tokens.has_all:
        return gathered(near, far)
    are_gathered = tokens.is_global.sum(axis=1).max() <= tokens.places.shape[1]
    return jax.lax.cond(are_gathered, gathered, ungathered, near, far)


def _queries_at(inputs: AttentionInputs, places: jax.Array) -> AttentionInputs:
    """The inputs with the queries at some positions, int32 [B, G], alone."""
    places = jnp.minimum(places, inputs.query.shape[2] - 1)[:, None]  # B1G

    def taken(array: jax.Array) -> jax.Array:
        return jnp.take_along_axis(array, places, axis=2)

    mask, dropout = inputs.mask, inputs.dropout
    if mask.is_packed:
        mask = dataclasses.replace(mask, query_ids=taken(mask.query_ids))
    if dropout is not None:
        dropout = dataclasses.replace(dropout, query_indices=taken(dropout.query_indices))
    query = jnp.take_along_axis(inputs.query, places[..., None], axis=2)
    return dataclasses.replace(inputs, query=query, mask=mask, dropout=dropout)


def _in_turn(attend: Attend, inputs: AttentionInputs) -> jax.Array:
    """Attention, [B, N, T, H], whose scores are in memory for some queries at a time."""
    rows, heads, length, width = inputs.query.shape
    size = min(_QUERIES_IN_TURN, length)
    blocks = -(-length // size)
    places = jnp.minimum(jnp.arange(blocks * size), length - 1).reshape(blocks, 1, size)

    def attend_block(places: jax.Array) -> jax.Array:
        block = _queries_at(inputs, jnp.broadcast_to(places, (rows, size)))
        if (positions := inputs.mask.query_positions) is not None:
            positions = positions[:, :, places[0]]
            mask = dataclasses.replace(block.mask, query_positions=positions)
            block = dataclasses.replace(block, mask=mask)
        return attend(block)

    output = jax.lax.map(jax.checkpoint(attend_block), places)  # KBNRH
    output = jnp.moveaxis(output, 0, 2).reshape(rows, heads, blocks * size, width)
    return output[:, :, :length]
