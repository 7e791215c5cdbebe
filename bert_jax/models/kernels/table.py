"""The table of attention kernels, in the order of preference."""

import math

from bert_jax.models.kernels import AttentionCall, Kernel, blocked, cudnn, pallas, xla

KERNELS = (
    pallas.KERNEL,
    cudnn.KERNEL,
    blocked.KERNEL,
    xla.KERNEL,  # computes every call on every platform
)

SETTINGS = tuple(dict.fromkeys(kernel.setting for kernel in (xla.KERNEL, *KERNELS)))
"""The values of `model.attention` other than "auto"."""


def select_kernel(setting: str, platform: str, call: AttentionCall) -> Kernel:
    """The kernel that computes a call.

    Args:
        setting: `Execution.attention`.
        platform: platform of the devices that compute: "cpu", "gpu" or "tpu".
        call: the call to compute.
    """
    settings = (setting, xla.KERNEL.setting)
    allowed = (k for k in KERNELS if k.setting in settings and platform in k.platforms)
    return next((kernel for kernel in allowed if kernel.supports(call)), xla.KERNEL)


def automatic_setting(platform: str) -> str:
    """The meaning of "auto" as `model.attention` on "cpu", "gpu" or "tpu"."""
    runs = (kernel for kernel in KERNELS if kernel.automatic and platform in kernel.platforms)
    return next((kernel.setting for kernel in runs), xla.KERNEL.setting)


def runs_on(setting: str, platform: str) -> bool:
    """Whether the kernel for a value of `model.attention` runs on a platform."""
    return any(platform in kernel.platforms for kernel in KERNELS if kernel.setting == setting)


def length_multiple(length: int) -> int:
    """The length multiple that suits every kernel for rows of `length` tokens."""
    return math.lcm(*(kernel.length_multiple for kernel in KERNELS if kernel.min_length <= length))
