"""How a model is computed fastest on a kind of device, for those who leave it to us."""

from typing import NamedTuple

import jax

from bert_jax.models.kernels.cpu_features import cpu_flags

# What a processor says of itself if it multiplies bfloat16 faster than float32.
_CPU_FLAGS = ("avx512_bf16", "amx_bf16")
_GPU_SINCE = 8.0  # Ampere

# Where kernels of attention run. A run goes with its config from one kind of device to another, so
# elsewhere products of matrices take their place.
_KERNELS = {"pallas": "tpu", "cudnn": "gpu"}


class Preferences(NamedTuple):
    """Fields of an `Execution`."""

    dtype: str
    scan_layers: bool
    attention: str


def resolve_execution(
    precision: str,
    scan_layers: bool | None = None,
    attention: str = "auto",
    *,
    platform: str = "",
) -> Preferences:
    """What is given, and what is fastest where "auto" or None is given.

    Measured on a CPU with AVX-512 BF16: a training step of bfloat16 takes 0.6 times as long as one
    of float32, of which a row of layers takes 0.8 times as long as a loop over them. In float32 the
    loop is as fast, and it compiles in half the time.

    cuDNN's attention is taken only where it is asked for: no GPU was there to measure it on.

    Args:
        precision: "auto" or a dtype.
        scan_layers: as in `Execution`; None for what is fastest.
        attention: "auto" or as in `Execution`; "xla" comes out where it cannot be had.
        platform: "cpu", "gpu" or "tpu" of devices elsewhere; "" for those that are here.
    """
    capability = None
    if not platform:
        device = jax.devices()[0]
        platform, capability = device.platform, getattr(device, "compute_capability", None)
    dtype = precision
    if precision == "auto":
        is_old = capability is not None and float(capability) < _GPU_SINCE
        is_wide = platform == "cpu" and not cpu_flags().intersection(_CPU_FLAGS)
        dtype = "float32" if is_old or is_wide else "bfloat16"
    if scan_layers is None:
        scan_layers = not (platform == "cpu" and dtype == "bfloat16")
    if attention == "auto":
        attention = "pallas"
    if attention in _KERNELS and platform != _KERNELS[attention]:
        attention = "xla"
    return Preferences(dtype, scan_layers, attention)
