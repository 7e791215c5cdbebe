"""Attention kernels: fast implementations of `attention.attention`, each for some calls.

docs/recipes.md shows how to add one.

The table is read by `attention.SelfAttention` (to select the kernel of a call), by
`execution.resolve_execution` (values of `model.attention`, and the meaning of "auto" on a platform;
the log of a training names the choice) and by `data.row_packing` (allowed lengths of packed rows).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

PLATFORMS = ("cpu", "gpu", "tpu")

MASK_VALUE = jnp.finfo(jnp.float32).min
"""A score that becomes 0 in softmax; minus infinity would give NaN in a row of nothing else."""

AttentionFunction = Callable[[jax.Array, jax.Array, jax.Array, Any, float, jax.Array], jax.Array]
"""Query, key, value [B, N, T, H], `AttentionContext`, dropout rate, dropout key → [B, N, T, H]."""


@dataclasses.dataclass(frozen=True)
class AttentionCall:
    """The properties of a call of attention that are known before anything is computed.

    Attributes:
        length: T, number of tokens.
        head_dim: H, width of a head.
        dtype: dtype of the activations.
        dropout_rate: dropout rate on the attention weights; 0 outside training.
        output_attentions: whether the attention weights are requested.
        packed: whether a row may hold several texts, so that segment ids differ within a row.
    """

    length: int
    head_dim: int
    dtype: str
    dropout_rate: float = 0.0
    output_attentions: bool = False
    packed: bool = False


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An implementation of attention, and the calls it is used for.

    Attributes:
        name: name, unique in the table.
        function: computes attention.
        platforms: platforms it runs on, of "cpu", "gpu" and "tpu".
        setting: value of `model.attention` that allows it; "": its name.
        automatic: whether "auto" as `model.attention` allows it on its platforms.
        min_length: shortest T for which it is faster than the kernels after it in the table.
        length_multiple: T must be a multiple of this.
        accepts: whether it can compute a call with a supported length.
    """

    name: str
    function: AttentionFunction
    platforms: tuple[str, ...]
    setting: str = ""
    automatic: bool = True
    min_length: int = 1
    length_multiple: int = 1
    accepts: Callable[[AttentionCall], bool] = lambda call: True

    def __post_init__(self) -> None:
        object.__setattr__(self, "setting", self.setting or self.name)

    def supports(self, call: AttentionCall) -> bool:
        """Whether it can compute a call, and faster than the kernels after it in the table."""
        is_length = call.length >= self.min_length and call.length % self.length_multiple == 0
        return is_length and self.accepts(call)
