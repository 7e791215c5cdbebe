"""The inputs of attention, and the record of a kernel that computes attention from them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.models.dropout import ElementIndices, dropped

MASK_VALUE = jnp.finfo(jnp.float32).min
"""A score that becomes 0 in softmax; a row of minus infinities would be NaN."""


@struct.dataclass
class AttentionMask:
    """Each query sees the keys with its segment id, within the limits of `causal` and `window`.

    The [T, S] mask is never stored: it is computed together with the scores. Segment ids have the
    meaning of JAX's flash attention. (The paper's segments, the sentences A and B of one text, are
    `token_type_ids`.) In a packed row each text has an id, from 1; padding has 0.

    The leading axes are [B], or [B, 1] and [B, N] for a kernel.

    Attributes:
        query_ids: int32 [..., T], segment ids of the queries, or [..., 1] if all queries of a row
            have the same.
        key_ids: int32 [..., S], segment ids of the keys.
        key_positions: int32 [..., S], position of each key in its row of the batch.
        query_positions: int32 [..., T]; only a mask with `causal` or `window` needs them.
        global_queries: bool [..., T], queries that see all keys in spite of the window
            (Longformer, https://arxiv.org/abs/2004.05150, section 3.1); None: there are none.
        global_keys: bool [..., S], keys that all queries see in spite of the window; None: there
            are none.
        causal: whether a query sees no key after its own position.
        window: radius: a query sees keys at most so many positions away; None: all.
        all_visible: whether each query is known to see all keys, within these limits.
    """

    query_ids: jax.Array
    key_ids: jax.Array
    key_positions: jax.Array
    query_positions: jax.Array | None = None
    global_queries: jax.Array | None = None
    global_keys: jax.Array | None = None
    causal: bool = struct.field(pytree_node=False, default=False)
    window: int | None = struct.field(pytree_node=False, default=None)
    all_visible: bool = struct.field(pytree_node=False, default=False)

    @property
    def is_limited(self) -> bool:
        """Whether a query sees only some positions."""
        return self.causal or self.window is not None

    @property
    def is_causal_alone(self) -> bool:
        """Whether `causal` is the only limit, and each query is at the position of its key."""
        positions = self.query_positions
        is_square = positions is not None and positions.shape == self.key_positions.shape
        return self.causal and self.window is None and is_square

    @property
    def visible(self) -> jax.Array:
        """Whether a query sees a key, bool [..., T, S], or [..., 1, S].

        Raises:
            ValueError: a mask with `causal` or `window` has no `query_positions`.
        """
        visible = self.query_ids[..., :, None] == self.key_ids[..., None, :]
        if not self.is_limited:
            return visible
        if self.query_positions is None:
            raise ValueError("a mask with causal or window lacks query_positions; set them")
        distance = self.query_positions[..., :, None] - self.key_positions[..., None, :]
        if self.causal:
            visible &= distance >= 0
        if self.window is not None:
            is_near = abs(distance) <= self.window
            if self.global_queries is not None:
                is_near |= self.global_queries[..., :, None]
            if self.global_keys is not None:
                is_near |= self.global_keys[..., None, :]
            visible &= is_near
        return visible

    def within(self, window: int) -> "AttentionMask":
        """The mask of queries at the positions of the keys, with a window."""
        return dataclasses.replace(self, query_positions=self.key_positions, window=window)

    @property
    def is_packed(self) -> bool:
        """Whether a row may hold several texts."""
        return self.query_ids.shape[-1] > 1

    def for_heads(self) -> "AttentionMask":
        """The same mask with an axis of heads, [B, 1, ...]."""
        return jax.tree.map(lambda array: array[:, None], self)


@struct.dataclass
class AttentionDropout:
    """Dropout on the attention weights.

    Attributes:
        key: uint32 [2], key of the dropout mask.
        query_indices: int32 [B, N, T], index of each query of each head; each one has its own mask,
            as in the original.
        rate: dropout rate.
    """

    key: jax.Array
    query_indices: jax.Array
    rate: float = struct.field(pytree_node=False)


@struct.dataclass
class AttentionInputs:
    """Attention of N heads: softmax(Q Kᵀ · scale + bias) V over the keys that each query sees.

    Attributes:
        query: Q, [B, N, T, H].
        key: K, [B, N, S, H].
        value: V, [B, N, S, H].
        mask: the keys that each query sees, [B, 1, ...]; a query that sees none attends to all
            equally.
        scale: factor of Q Kᵀ.
        bias: float32, broadcast to [B, N, T, S]; None: 0.
        dropout: dropout on the weights; None: nothing is dropped.
    """

    query: jax.Array
    key: jax.Array
    value: jax.Array
    mask: AttentionMask
    scale: float = struct.field(pytree_node=False)
    bias: jax.Array | None = None
    dropout: AttentionDropout | None = None

    def drop(self, weights: jax.Array) -> jax.Array:
        """Attention weights [..., T, S], or their gradients, after dropout."""
        if self.dropout is None:
            return weights
        queries = self.dropout.query_indices[..., :, None]
        indices = ElementIndices(queries, self.mask.key_positions[..., None, :])
        return dropped(self.dropout.rate, weights, self.dropout.key, indices)

    def gradients(
        self, query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array | None = None
    ) -> tuple["AttentionInputs"]:
        """The result of a backward pass: gradients of Q, K and V in V's dtype, and of the bias."""
        query, key, value = (array.astype(self.value.dtype) for array in (query, key, value))
        none: Any = None
        return (
            dataclasses.replace(
                self, query=query, key=key, value=value, mask=none, bias=bias, dropout=none
            ),
        )


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An implementation of attention, and the inputs it is used for.

    Attributes:
        name: name, unique in the table.
        function: computes attention, [B, N, T, H].
        platforms: platforms it runs on, of "cpu", "gpu" and "tpu"; (): all.
        setting: value of `model.attention` that allows it; "": its name.
        automatic: whether "auto" as `model.attention` allows it on its platforms.
        min_length: shortest T for which it is faster than the kernels after it in the table.
        length_multiple: T and S must be multiples of this.
        is_fused: whether it never has the attention weights; not used where they are requested.
        accepts: whether it computes inputs of a supported length, from their shapes and dtypes.
    """

    name: str
    function: Callable[[AttentionInputs], jax.Array]
    platforms: tuple[str, ...] = ()
    setting: str = ""
    automatic: bool = True
    min_length: int = 1
    length_multiple: int = 1
    is_fused: bool = False
    accepts: Callable[[AttentionInputs], bool] = lambda inputs: True

    def __post_init__(self) -> None:
        object.__setattr__(self, "setting", self.setting or self.name)

    def runs_on(self, platform: str) -> bool:
        """Whether a platform has it."""
        return not self.platforms or platform in self.platforms

    def supports(self, inputs: AttentionInputs, *, output_attentions: bool = False) -> bool:
        """Whether it computes the inputs, and faster than the kernels after it in the table."""
        queries, keys = inputs.query.shape[2], inputs.key.shape[2]
        are_multiples = all(length % self.length_multiple == 0 for length in (queries, keys))
        is_length = queries >= self.min_length and are_multiples
        return is_length and not (self.is_fused and output_attentions) and self.accepts(inputs)
