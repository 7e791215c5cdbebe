"""How a model is computed: dtype, loop over layers, recomputation, attention kernel, padding."""

import dataclasses

import jax

from bert_jax.errors import OptionError, require_at_least, require_one_of
from bert_jax.models.kernels import SETTINGS, automatic_setting, runs_on
from bert_jax.sharding.runtime import multiplies_bfloat16

# From the most to the fewest values saved for the backward pass, see `layer_stack.REMAT_POLICIES`.
REMAT = ("none", "dots", "dots_with_no_batch_dims", "full")

# NVIDIA GPUs multiply bfloat16 fast from this compute capability on: Ampere.
_BFLOAT16_CAPABILITY = 8.0


@dataclasses.dataclass(frozen=True)
class Execution:
    """Options of the computation that change speed, memory and rounding, but not the function.

    Attributes:
        dtype: dtype of activations, "float32" or "bfloat16"; parameters, softmax, LayerNorm
            statistics and losses are float32 in both.
        scan_layers: whether one compiled layer runs in a loop (compiles 2-3 times faster), or L
            layers. The parameters are stacked [L, ...] in both, so checkpoints do not depend on it.
        remat: values of each layer that the backward pass recomputes: "none"; "dots", all but the
            results of matrix products; "dots_with_no_batch_dims", the attention weights too, which
            are products of activations and grow with the square of the length; "full", all.
        pad_vocab_to_multiple_of: tables with one row per word get additional rows, so that their
            number of rows is a multiple of it; the additional rows are 0 and stay 0.
        attention: "xla", or the name of a kernel that is used for every call it supports, see
            `models.kernels`: "pallas" on TPUs, "cudnn" on GPUs, "definition" everywhere.
        platform: platform of the devices that compute: "cpu", "gpu" or "tpu"; "": the local ones.
    """

    dtype: str = "float32"
    scan_layers: bool = True
    remat: str = "none"
    pad_vocab_to_multiple_of: int = 1
    attention: str = "xla"
    platform: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "bfloat16"):
            raise OptionError("precision", self.dtype, "known are auto, float32, bfloat16")
        if not isinstance(self.scan_layers, bool):
            raise OptionError("model.scan_layers", self.scan_layers, "it must be True or False")
        if self.attention not in SETTINGS:
            known = ", ".join(("auto", *SETTINGS))
            raise OptionError("model.attention", self.attention, f"known are {known}")
        require_one_of("model.remat", self.remat, REMAT)
        require_at_least("model.pad_vocab_to_multiple_of", self.pad_vocab_to_multiple_of, 1)

    def padded_vocab_size(self, vocab_size: int) -> int:
        """The number of rows of a table for V words, including padding."""
        return -(-vocab_size // self.pad_vocab_to_multiple_of) * self.pad_vocab_to_multiple_of


def resolve_execution(
    precision: str,
    scan_layers: bool | None = None,
    attention: str = "auto",
    *,
    platform: str = "",
) -> Execution:
    """An `Execution`; values that are "auto" or None are chosen for the device.

    Measured on a CPU with AVX-512 BF16: a training step in bfloat16 takes 0.6 times as long as one
    in float32, and there layers in a row take 0.8 times as long as a loop over them. In float32 the
    loop is as fast, and it compiles in half the time.

    Args:
        precision: "auto" or a dtype.
        scan_layers: see `Execution`; None for the faster choice.
        attention: "auto", or see `Execution`. A kernel that does not run on this platform is
            replaced by "xla", since a config may be used on several kinds of devices.
        platform: "cpu", "gpu" or "tpu", to plan for other devices; "" for the local devices.
    """
    capability = None
    if not platform:
        device = jax.devices()[0]
        platform, capability = device.platform, getattr(device, "compute_capability", None)
    dtype = precision
    if precision == "auto":
        is_old_gpu = capability is not None and float(capability) < _BFLOAT16_CAPABILITY
        is_float32_cpu = platform == "cpu" and not multiplies_bfloat16()
        dtype = "float32" if is_old_gpu or is_float32_cpu else "bfloat16"
    if scan_layers is None:
        scan_layers = not (platform == "cpu" and dtype == "bfloat16")
    if attention == "auto":
        attention = automatic_setting(platform)
    elif attention in SETTINGS and not runs_on(attention, platform):
        attention = "xla"
    return Execution(dtype, scan_layers, attention=attention, platform=platform)
