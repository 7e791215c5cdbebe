"""Which meshes are worth a thought, and which one `mesh=auto` takes."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.errors import UserError
from bert_jax.planning.hardware import Slice, hardware_of
from bert_jax.planning.memory import estimate, trace_activations
from bert_jax.sharding.hosts import from_all_hosts, is_main_host, rows_per_host
from bert_jax.sharding.mesh import AXES, MeshShape, make_mesh
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.state import abstract_state

# A program may not have all of a device's memory: 15.75 of 16 GiB of a v5e.
_OF_A_PROGRAM = 0.98
# The estimate leaves out small buffers and what lies between the others.
_ESTIMATED = 0.9
_TENSOR_SIZES = (1, 2, 4, 8)


def choose_mesh(
    task: Task,
    optimizer: Optimizer,
    options: TrainOptions,
    devices: Sequence[jax.Device],
    memory_bytes: int,
) -> MeshShape:
    """The mesh that sends least among those that fit, by the estimate of `memory`.

    In order: the whole model on every device; the state cut over ever more of them (`fsdp`); only
    then the layers themselves (`tensor`).

    Args:
        task: model and batches.
        optimizer: whose state is kept.
        options: batch and micro-batches.
        devices: all of them.
        memory_bytes: of one of them.

    Raises:
        UserError: nothing fits, or the batch or the model cannot be divided.
    """
    batch, activations = task.batch_shapes(), None
    refusal: UserError | None = None
    best: tuple[int, MeshShape] | None = None
    for shape in _by_traffic(len(devices)):
        try:
            mesh = make_mesh(shape, list(devices))
            rows_per_host(options.global_batch_size, mesh, options.microbatches)
            abstract = abstract_state(task, optimizer, mesh)
        except UserError as error:
            refusal = refusal or error
            continue
        activations = activations or trace_activations(task, optimizer, abstract.params)
        memory = estimate(abstract, batch, mesh, activations, microbatches=options.microbatches)
        if memory.peak <= _ESTIMATED * memory_bytes:
            return shape
        best = min(best or (memory.peak, shape), (memory.peak, shape), key=lambda pair: pair[0])
    if best is None:
        assert refusal is not None
        raise refusal
    raise UserError(
        f"mesh=auto: a step needs about {best[0] / 2**30:.1f} GiB of each device, even with "
        f"{label(best[1])}, and {_ESTIMATED * memory_bytes / 2**30:.1f} are there; set "
        f"model.remat=full, or raise train.microbatches (now {options.microbatches}) of a new run"
    )


def device_memory(devices: Sequence[jax.Device]) -> int:
    """Bytes that a program may have on each of these devices.

    CPU devices share the memory of the machine.

    Raises:
        UserError: the device does not say, and is not in the table.
    """
    device = next(one for one in devices if one.process_index == jax.process_index())
    if device.platform == "cpu":
        here = sum(one.process_index == device.process_index for one in devices)
        return _host_memory() // here
    if limit := (device.memory_stats() or {}).get("bytes_limit"):
        return limit
    hardware = hardware_of(device.device_kind)
    if hardware is None or hardware.memory_bytes is None:
        raise UserError(
            f"mesh=auto: how much memory a {device.device_kind} has is not known; set mesh.data "
            "and mesh.fsdp"
        )
    return hardware.memory_bytes


def usable_memory(wanted: Slice) -> int:
    """Bytes that a program may have on each device of a slice that is not here.

    CPU devices share the memory of this machine.
    """
    if wanted.hardware.memory_bytes is None:
        return _host_memory() // wanted.devices
    return int(_OF_A_PROGRAM * wanted.hardware.memory_bytes)


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def sensible_meshes(devices: int) -> list[MeshShape]:
    """A handful of meshes to compare: one of each kind that is used.

    The model whole on every device; its state cut over all devices, or over a square's side of
    them; and each layer over 2 or 4.
    """
    side = 1 << (devices.bit_length() - 1) // 2
    candidates = [
        MeshShape(data=devices),
        MeshShape(data=devices // side, fsdp=side),
        MeshShape(data=1, fsdp=devices),
        *(MeshShape(data=devices // tensor, tensor=tensor) for tensor in (2, 4)),
    ]
    fitting = [shape for shape in candidates if _size(shape) == devices]
    return list(dict.fromkeys(fitting))


def chosen_mesh(task: Task, optimizer: Optimizer, options: TrainOptions) -> Mesh:
    """The mesh of `mesh=auto` over all devices of this run."""
    devices = jax.devices()
    # One answer for all hosts, whose memories may differ.
    memory = min(from_all_hosts(device_memory(devices)))
    shape = choose_mesh(task, optimizer, options, devices, memory)
    if is_main_host():
        print(f"mesh=auto: {label(shape)}", file=sys.stderr)
    return make_mesh(shape, devices)


def parse_mesh(text: str) -> MeshShape:
    """Reads `fsdp=64,data=4`; `data` takes what is left, if it is not given.

    Raises:
        UserError: an axis is unknown, or a size no number.
    """
    sizes: dict[str, Any] = {}
    for part in text.split(","):
        axis, _, size = part.partition("=")
        if axis not in AXES or not size.isdigit() or axis in sizes:
            raise UserError(
                f"--mesh {text}: {part!r} is not AXIS=SIZE of one of {', '.join(AXES)}; write "
                "fsdp=8,data=4, or auto, or all"
            )
        sizes[axis] = int(size)
    return MeshShape(**sizes)


def label(shape: MeshShape) -> str:
    """A mesh as it is written on the command line, axes of one device left out."""
    sizes = [(axis, getattr(shape, axis)) for axis in AXES]
    return ",".join(f"{axis}={size}" for axis, size in sizes if size != 1) or "data=1"


def _by_traffic(devices: int) -> Iterator[MeshShape]:
    for tensor in _TENSOR_SIZES:
        if devices % tensor:
            continue
        rest = devices // tensor
        for fsdp in (size for size in range(1, rest + 1) if rest % size == 0):
            yield MeshShape(data=rest // fsdp, fsdp=fsdp, tensor=tensor)


def _size(shape: MeshShape) -> int:
    return shape.data * shape.fsdp * shape.tensor
