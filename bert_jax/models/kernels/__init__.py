"""Attention kernels: implementations of `definition.attention`, each fast for some inputs.

docs/recipes.md shows how to add one.

The table is read by `attention.Attention` (to select the kernel of its inputs), by
`execution.resolve_execution` (values of `model.attention`, and the meaning of "auto" on a platform;
the log of a training names the choice) and by `data.row_packing` (allowed lengths of packed rows).
"""

import dataclasses
from collections.abc import Callable

import jax

from bert_jax.models.attention_inputs import AttentionInputs


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
        length_multiple: T must be a multiple of this.
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
        return not self.platforms or platform in self.platforms

    def supports(self, inputs: AttentionInputs, *, output_attentions: bool = False) -> bool:
        """Whether it computes the inputs, and faster than the kernels after it in the table."""
        length = inputs.query.shape[2]
        is_length = length >= self.min_length and length % self.length_multiple == 0
        return is_length and not (self.is_fused and output_attentions) and self.accepts(inputs)
