"""The devices that a plan can be made for: a table of published figures, slices, placeholders.

Sources. TPUs: the pages "TPU v4", "TPU v5e", "TPU v5p" and "TPU v6e" of cloud.google.com/tpu/docs.
GPUs: NVIDIA's data sheets of A100 SXM 80 GB, H100 SXM and H200 SXM; the rates are for dense
matrices. The interconnect figure is the rate at which one device sends while it receives as much:
half of the "bidirectional" figure of the newer TPU pages and of NVLink, the Gbit/s of the older TPU
pages divided by eight.
"""

import dataclasses
import difflib
import importlib.metadata
import math
import os
import re
from typing import Any

from bert_jax.errors import OptionError, UserError
from bert_jax.sharding.runtime import WITHOUT_TPU

_GIB = 2**30
_INSTALL = 'pip install "bert_jax[tpu]"'


@dataclasses.dataclass(frozen=True)
class Hardware:
    """One kind of device; figures are None if they differ from machine to machine.

    Attributes:
        name: name in a topology.
        platform: "tpu", "gpu" or "cpu".
        device_kind: prefix of JAX's `device_kind` of the device.
        bfloat16_flops: peak rate of dense matrix products with bfloat16 inputs, FLOP/s.
        float32_flops: the same for float32 with JAX's default precision: one bfloat16 pass on TPUs,
            TensorFloat-32 on GPUs.
        memory_bytes: memory of one device.
        memory_bandwidth: memory bandwidth, byte/s.
        interconnect_bandwidth: rate at which a device sends, byte/s.
        topology_dimensions: count of numbers in a topology, such as 2 in 16x16.
    """

    name: str
    platform: str
    device_kind: str
    bfloat16_flops: float | None = None
    float32_flops: float | None = None
    memory_bytes: int | None = None
    memory_bandwidth: float | None = None
    interconnect_bandwidth: float | None = None
    topology_dimensions: int = 1

    def flops(self, dtype: str) -> float | None:
        """The peak rate for activations of a dtype, FLOP/s."""
        return self.bfloat16_flops if dtype == "bfloat16" else self.float32_flops


# Beyond the largest slices of Cloud TPU, of some 9,000 chips.
MOST_DEVICES = 2**16

_PUBLISHED = (
    # name, platform, JAX's kind, TFLOP/s in bfloat16 and float32, bytes, GB/s of memory and sent
    ("v4", "tpu", "TPU v4", 275, 275, 32 * _GIB, 1228, 300, 3),
    ("v5e", "tpu", "TPU v5 lite", 197, 197, 16 * _GIB, 819, 200, 2),
    ("v5p", "tpu", "TPU v5", 459, 459, 95 * _GIB, 2765, 600, 3),
    ("v6e", "tpu", "TPU v6 lite", 918, 918, 32 * _GIB, 1638, 400, 2),
    ("a100", "gpu", "NVIDIA A100", 312, 156, 80 * 10**9, 2039, 300, 1),
    ("h100", "gpu", "NVIDIA H100", 989, 494.5, 80 * 10**9, 3350, 450, 1),
    ("h200", "gpu", "NVIDIA H200", 989, 494.5, 141 * 10**9, 4800, 450, 1),
)
HARDWARE: dict[str, Hardware] = {
    row[0]: Hardware(
        *row[:3], row[3] * 1e12, row[4] * 1e12, row[5], row[6] * 1e9, row[7] * 1e9, row[8]
    )
    for row in _PUBLISHED
} | {"cpu": Hardware("cpu", "cpu", "cpu")}


@dataclasses.dataclass(frozen=True)
class Slice:
    """Connected devices of one kind, such as `v5e:16x16`.

    Attributes:
        hardware: kind of each device.
        shape: shape of the torus; GPUs and CPUs have one number.
    """

    hardware: Hardware
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of devices; a chip with two cores is one device."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.hardware.name}:{'x'.join(map(str, self.shape))}"


def parse_slice(text: str) -> Slice:
    """Parses `v5e:16x16`, `v4:4x4x4`, `h100:8` or `cpu:8`.

    Raises:
        UserError: the device (the message names the nearest known one) or its shape is unknown.
    """
    name, _, shape = text.partition(":")
    if name.lower() not in HARDWARE:
        near = difflib.get_close_matches(name.lower(), HARDWARE, n=1, cutoff=0.0)
        rule = f"the nearest known device is {near[0]!r} (of {', '.join(HARDWARE)})"
        raise OptionError("topology", text, rule)
    hardware = HARDWARE[name.lower()]
    sizes = hardware.topology_dimensions
    example = "x".join(["4"] * sizes) if sizes > 1 else "8"
    if not re.fullmatch(r"\d{1,9}(x\d{1,9})*", shape, re.ASCII) or len(shape.split("x")) != sizes:
        raise OptionError(
            "topology",
            text,
            f"devices of {hardware.name} are arranged in {sizes} dimension{'s' * (sizes > 1)}; "
            f"write it as {hardware.name}:{example}",
        )
    parsed = Slice(hardware, tuple(map(int, shape.split("x"))))
    if parsed.count < 1:
        raise OptionError("topology", text, "each number must be at least 1")
    if parsed.count > MOST_DEVICES:
        rule = f"a plan is made for {MOST_DEVICES:,} devices at most"
        raise UserError(f"{text} are {parsed.count:,} devices; {rule}")
    return parsed


def hardware_of(device_kind: str) -> Hardware | None:
    """The entry of the table for JAX's `device.device_kind`, None if there is none."""
    matches = [each for each in HARDWARE.values() if device_kind.startswith(each.device_kind)]
    return max(matches, key=lambda each: len(each.device_kind), default=None)


@dataclasses.dataclass(frozen=True)
class Topology:
    """A slice with the devices that a mesh is built from.

    Attributes:
        slice: kind and arrangement of the devices.
        devices: JAX's devices, or placeholders.
        compiles: whether programs can be compiled for them on this machine.
    """

    slice: Slice
    devices: list[Any]
    compiles: bool


def prepare_process(requested: Slice) -> None:
    """Sets environment variables of JAX and libtpu; must be called before JAX is imported.

    The plan itself runs on the CPU, even if there is a TPU or a GPU.
    """
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if requested.hardware.platform == "tpu":
        os.environ.update(WITHOUT_TPU)
        # A program for a TPU that is not there is stored, but cannot be read: JAX would warn.
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if requested.hardware.platform == "cpu":
        flags = os.environ.get("XLA_FLAGS", "")
        if "xla_force_host_platform_device_count" not in flags:
            count = f"--xla_force_host_platform_device_count={requested.count}"
            os.environ["XLA_FLAGS"] = f"{flags} {count}".strip()


def find_topology(requested: Slice) -> Topology:
    """The devices of a slice.

    GPUs, and CPU devices that this process does not have, are placeholders: shapes can be sharded
    over them, but nothing can be compiled.

    Raises:
        UserError: libtpu is missing, does not match this JAX version, or has no such slice.
    """
    import jax

    if requested.hardware.platform == "tpu":
        return Topology(requested, _tpu_devices(requested), compiles=True)
    here = jax.devices("cpu")
    if requested.hardware.platform == "cpu" and len(here) >= requested.count:
        return Topology(requested, here[: requested.count], compiles=True)
    return Topology(requested, here[:1] * requested.count, compiles=False)


def _tpu_devices(requested: Slice) -> list[Any]:
    import jax
    from jax.experimental import topologies

    check_libtpu()
    options: dict[str, Any] = {}
    if requested.hardware.name == "v4":
        options["chip_config_name"] = "megacore"  # two cores are one device, as on a real machine
    if requested.count < 4:  # less than a host
        options["chips_per_host_bounds"] = (*requested.shape, *[1] * (3 - len(requested.shape)))
    try:
        description = topologies.get_topology_desc(str(requested), platform="tpu", **options)
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).split("\n")[0]
        if not reason.startswith("INVALID_ARGUMENT"):
            raise UserError(f"{requested}: libtpu does not start: {reason}") from error
        raise UserError(
            f"{requested}: there is no such slice ({reason}); choose one of Cloud TPU's"
        ) from error
    return list(description.devices)


def check_libtpu() -> None:
    """Raises UserError unless the libtpu that matches the installed JAX is installed."""
    from packaging.requirements import Requirement

    requirement = next(
        requirement
        for requirement in map(Requirement, importlib.metadata.requires("jax") or ())
        if requirement.name == "libtpu"
    )
    try:
        version = importlib.metadata.version("libtpu")
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError(
            f"a plan for TPUs needs their compiler, libtpu, which is not installed; {_INSTALL}"
        ) from error
    if not requirement.specifier.contains(version):
        raise UserError(
            f"libtpu {version} does not match JAX {importlib.metadata.version('jax')}, which "
            f"needs {requirement.specifier}; {_INSTALL}"
        )
