"""Attention kernels: implementations of `definition.attention`, each fast for some inputs.

`Attention` selects a kernel of the table for its inputs, `resolve_execution` the meaning of "auto"
as `model.attention` on a platform. docs/recipes.md shows how to add one.
"""

import math

from bert_jax.models.attention_inputs import AttentionInputs, Kernel
from bert_jax.models.kernels import blocked, cudnn, definition, pallas, xla

# In the order of preference.
KERNELS = (
    pallas.KERNEL,
    cudnn.KERNEL,
    blocked.KERNEL,
    xla.KERNEL,
    definition.KERNEL,  # computes everything on every platform
)

SETTINGS = tuple(dict.fromkeys(kernel.setting for kernel in (xla.KERNEL, *KERNELS)))
"""The values of `model.attention` other than "auto"."""


def select_kernel(
    setting: str, platform: str, inputs: AttentionInputs, *, output_attentions: bool = False
) -> Kernel:
    """The kernel that computes attention.

    Args:
        setting: `Execution.attention`.
        platform: platform of the devices that compute: "cpu", "gpu" or "tpu".
        inputs: arrays, or their shapes and dtypes.
        output_attentions: whether the attention weights are requested.
    """
    settings = (setting, xla.KERNEL.setting, definition.KERNEL.setting)
    allowed = (k for s in settings for k in KERNELS if k.setting == s and k.runs_on(platform))
    return next(k for k in allowed if k.supports(inputs, output_attentions=output_attentions))


def automatic_setting(platform: str) -> str:
    """The meaning of "auto" as `model.attention` on "cpu", "gpu" or "tpu"."""
    return next(k.setting for k in KERNELS if k.automatic and k.runs_on(platform))


def runs_on(setting: str, platform: str) -> bool:
    """Whether the kernel for a value of `model.attention` runs on a platform."""
    return any(k.runs_on(platform) for k in KERNELS if k.setting == setting)


def length_multiple(length: int) -> int:
    """The length multiple that suits every kernel for rows of `length` tokens."""
    return math.lcm(*(kernel.length_multiple for kernel in KERNELS if kernel.min_length <= length))
