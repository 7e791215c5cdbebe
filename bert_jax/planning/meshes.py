"""Candidate meshes, and the one that `mesh=auto` chooses."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.errors import OptionError, UserError
from bert_jax.planning.hardware import Slice, hardware_of
from bert_jax.planning.memory import estimate, trace_activations
from bert_jax.sharding.hosts import check_batch_size, from_all_hosts, is_main_host
from bert_jax.sharding.memory import host_memory, reported_memory
from bert_jax.sharding.mesh import AXES, MeshShape, make_mesh
from bert_jax.standard_streams import say
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import abstract_state

# A program cannot use all of a device's memory: 15.75 of 16 GiB of a v5e.
_USABLE_FRACTION = 0.98
# The estimate leaves out small buffers and fragmentation.
_ESTIMATED_FRACTION = 0.9
_TENSOR_SIZES = (1, 2, 4, 8)


def choose_mesh(
    task: Task,
    optimizer: Optimizer,
    options: TrainOptions,
    devices: Sequence[jax.Device],
    memory_bytes: int,
) -> MeshShape:
    """The mesh with the least communication among those that fit by the estimate of `memory`.

    In order: the whole model on every device; the state split over more and more of them
    (`fsdp`); only then each layer (`tensor`).

    Args:
        task: task with model and batches.
        optimizer: optimizer, whose state takes memory.
        options: batch size and micro-batches.
        devices: all devices.
        memory_bytes: memory of one device.

    Raises:
        UserError: no mesh fits, or none divides the batch and the model.
    """
    batch, activations = task.batch_shapes(), None
    first_error: UserError | None = None
    best: tuple[int, MeshShape] | None = None
    for shape in _by_traffic(len(devices)):
        try:
            mesh = make_mesh(shape, list(devices))
            check_batch_size(options.global_batch_size, mesh, options.microbatches)
            abstract = abstract_state(task, optimizer, mesh)
        except UserError as error:
            first_error = first_error or error
            continue
        constants = task.abstract_constants(mesh)
        activations = activations or trace_activations(task, optimizer, abstract.params, constants)
        memory = estimate(
            abstract,
            batch,
            mesh,
            activations,
            microbatches=options.microbatches,
            constants=constants,
        )
        if memory.peak <= _ESTIMATED_FRACTION * memory_bytes:
            return shape
        best = min(best or (memory.peak, shape), (memory.peak, shape), key=lambda pair: pair[0])
    if best is None:
        assert first_error is not None
        raise first_error
    raise OptionError(
        "microbatches",
        options.microbatches,
        f"set {{remat=full}}, or raise {{microbatches}} (now {options.microbatches}) of a new run",
        problem=f"mesh=auto: a step needs about {best[0] / 2**30:.1f} GiB of each device, even "
        f"with {label(best[1])}; {_ESTIMATED_FRACTION * memory_bytes / 2**30:.1f} are available",
    )


def device_memory(devices: Sequence[jax.Device]) -> int:
    """The bytes that a program may use on each of these devices.

    CPU devices share the memory of the machine.

    Raises:
        UserError: the device does not report it and is not in the table.
    """
    if limit := reported_memory(devices):
        return limit
    kind = devices[0].device_kind
    hardware = hardware_of(kind)
    if hardware is None or hardware.memory_bytes is None:
        raise OptionError(
            "auto",
            True,
            "set {data} and {fsdp}",
            problem=f"mesh=auto: how much memory a {kind} has is not known",
        )
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
    tensors = [tensor for tensor in (2, 4) if tensor <= devices]
    candidates = [
        MeshShape(data=devices),
        MeshShape(data=devices // root, fsdp=root),
        MeshShape(data=1, fsdp=devices),
        *(MeshShape(data=devices // tensor, tensor=tensor) for tensor in tensors),
    ]
    fitting = [mesh for mesh in candidates if mesh.data * mesh.fsdp * mesh.tensor == devices]
    return list(dict.fromkeys(fitting))


def auto_mesh(task: Task, optimizer: Optimizer, options: TrainOptions) -> Mesh:
    """The mesh for `mesh=auto` over all devices of this run."""
    devices = jax.devices()
    # The same on all hosts, which may have different amounts of memory.
    memory = min(from_all_hosts(device_memory(devices)))
    shape = choose_mesh(task, optimizer, options, devices, memory)
    if is_main_host():
        say(f"mesh=auto: {label(shape)}")
    return make_mesh(shape, devices)


def parse_mesh(text: str) -> MeshShape:
    """Parses `fsdp=64,data=4`; without `data`, that axis takes the remaining devices.

    Raises:
        UserError: an axis is unknown, or a size is not a number.
    """
    sizes: dict[str, Any] = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if axis not in AXES or not re.fullmatch(r"\d{1,9}", size, re.ASCII) or axis in sizes:
            raise OptionError(
                "mesh",
                text,
                "write {mesh=fsdp=8,data=4}, or auto, or all",
                problem=f"{text}: {part!r} is not AXIS=SIZE of one of {', '.join(AXES)}",
            )
        sizes[axis] = int(size)
    return MeshShape(**sizes)


def label(shape: MeshShape) -> str:
    """A mesh in the form of the command line, without axes of size 1."""
    sizes = [(axis, getattr(shape, axis)) for axis in AXES]
    return ",".join(f"{axis}={size}" for axis, size in sizes if size != 1) or "data=1"


def _by_traffic(devices: int) -> Iterator[MeshShape]:
    for tensor in _TENSOR_SIZES:
        if devices % tensor:
            continue
        rest = devices // tensor
        for fsdp in (size for size in range(1, rest + 1) if rest % size == 0):
            yield MeshShape(data=rest // fsdp, fsdp=fsdp, tensor=tensor)
