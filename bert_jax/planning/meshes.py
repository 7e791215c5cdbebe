"""Candidate meshes, and the choice of `mesh=auto`."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.errors import OptionError, UserError
from bert_jax.planning.hardware import Slice, hardware_of
from bert_jax.planning.training_on_mesh import Training, TrainingOnMesh, label
from bert_jax.process import say
from bert_jax.sharding.hosts import from_all_hosts, is_main_host
from bert_jax.sharding.mesh import AXES, MeshShape, host_memory, make_mesh, reported_memory

# A program cannot use all of a device's memory: 15.75 of 16 GiB of a v5e.
_USABLE_FRACTION = 0.98
# The estimate leaves out small buffers and fragmentation.
_ESTIMATED_FRACTION = 0.9
_TENSOR_SIZES = (1, 2, 4, 8)


def choose_mesh(training: Training, devices: list[jax.Device], memory_bytes: int) -> MeshShape:
    """The mesh with the least communication of all that fit by the estimate.

    In order: the whole model on every device; the state split over more and more of them
    (`fsdp`); only then each layer (`tensor`).

    Args:
        training: the training.
        devices: all devices.
        memory_bytes: memory of one device.

    Raises:
        UserError: no mesh fits, or none divides the batch and the model.
    """
    limit = _ESTIMATED_FRACTION * memory_bytes
    peaks: dict[MeshShape, int] = {}
    errors: list[UserError] = []
    for shape in _by_traffic(len(devices)):
        try:
            peaks[shape] = TrainingOnMesh(training, shape, devices).estimate.peak
        except UserError as error:
            errors.append(error)
            continue
        if peaks[shape] <= limit:
            return shape
    if not peaks:
        raise errors[0]
    least = min(peaks, key=lambda shape: peaks[shape])
    microbatches = training.options.microbatches
    raise OptionError(
        "mesh",
        "auto",
        "set {model.remat=full}, or raise {train.microbatches} "
        f"(now {microbatches}) of a new run",
        problem=f"mesh=auto: a step needs about {peaks[least] / 2**30:.1f} GiB of each device, "
        f"even with {label(least)}; {limit / 2**30:.1f} are available",
    )


def auto_mesh(training: Training) -> Mesh:
    """The mesh for `mesh=auto` over all devices of this run."""
    devices = jax.devices()
    # The same on all hosts, which may have different amounts of memory.
    memory = min(from_all_hosts(device_memory(devices)))
    shape = choose_mesh(training, devices, memory)
    if is_main_host():
        say(f"mesh=auto: {label(shape)}")
    return make_mesh(shape, devices)


def device_memory(devices: Sequence[jax.Device]) -> int:
    """The bytes that a program may use on each of these devices.

    CPU devices share the memory of the machine.

    Raises:
        OptionError: the device does not report it and is not in the table.
    """
    if limit := reported_memory(devices):
        return limit
    kind = devices[0].device_kind
    hardware = hardware_of(kind)
    if hardware is None or hardware.memory_bytes is None:
        problem = f"mesh=auto: how much memory a {kind} has is not known"
        raise OptionError("mesh", "auto", "set {mesh.data} and {mesh.fsdp}", problem)
    return hardware.memory_bytes


def usable_memory(devices: Slice) -> int:
    """The bytes that a program may use on each device of a slice that need not exist locally.

    CPU devices share the memory of this machine.
    """
    if devices.hardware.memory_bytes is None:
        return host_memory() // devices.count
    return int(_USABLE_FRACTION * devices.hardware.memory_bytes)


def candidate_meshes(devices: int) -> list[MeshShape]:
    """A few meshes to compare, one of each common kind.

    The whole model on every device; the state split over all devices, or over about the square
    root of their number; each layer split over 2 or 4.
    """
    root = 1 << (devices.bit_length() - 1) // 2
    splits = [(1, 1), (root, 1), (devices, 1), (1, 2), (1, 4)]  # fsdp, tensor
    candidates = [
        MeshShape(data=devices // (fsdp * tensor), fsdp=fsdp, tensor=tensor)
        for fsdp, tensor in splits
        if devices % (fsdp * tensor) == 0
    ]
    return list(dict.fromkeys(candidates))


def parse_mesh(text: str) -> MeshShape:
    """Parses `fsdp=64,data=4`; without `data`, that axis takes the remaining devices.

    Raises:
        UserError: an axis is unknown, or a size is not a number.
    """
    sizes: dict[str, Any] = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if axis not in AXES or not re.fullmatch(r"\d{1,9}", size, re.ASCII) or axis in sizes:
            raise UserError(
                f"{text}: {part!r} is not AXIS=SIZE of one of {', '.join(AXES)}; "
                "write --mesh fsdp=8,data=4, or auto, or all"
            )
        sizes[axis] = int(size)
    return MeshShape(**sizes)


def _by_traffic(devices: int) -> Iterator[MeshShape]:
    for tensor in _TENSOR_SIZES:
        rest, remainder = divmod(devices, tensor)
        for fsdp in range(1, rest + 1):
            if not remainder and rest % fsdp == 0:
                yield MeshShape(data=rest // fsdp, fsdp=fsdp, tensor=tensor)
