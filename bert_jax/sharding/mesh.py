"""The mesh: all devices of a run as a named grid; the memory of these devices."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from bert_jax.errors import INT32_MAX, OptionError, UserError, first_line, require_at_least

AXES = ("data", "fsdp", "tensor")
_SIZES = "{mesh.data}, {mesh.fsdp} and {mesh.tensor}"  # in rules of an `OptionError`


@dataclasses.dataclass(frozen=True)
class MeshShape:
    """The section `mesh` of a config: sizes of the axes; one may be -1: the remaining devices.

    Attributes:
        data: replicas of the model, each with a part of the batch.
        fsdp: parts of the parameters, each with a part of the batch, too.
        tensor: parts of each layer's heads and feed-forward width.
        auto: whether the sizes are chosen by memory, see `planning.meshes.choose_mesh`; outside
            training, every device has the whole model. In a config: `mesh=auto`.
    """

    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    auto: bool = False

    def __post_init__(self) -> None:
        for axis, size in zip(AXES, self.sizes, strict=True):
            require_at_least(f"mesh.{axis}", size, -INT32_MAX)
        if self.sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in self.sizes):
            rule = f"{_SIZES} must be at least 1, and only one may be -1 (the rest)"
            raise OptionError("mesh", str(self), rule, problem=f"there is no mesh {self}")
        if self.auto and (self.data, self.fsdp, self.tensor) != (-1, 1, 1):
            problem = f"mesh=auto chooses the sizes, but {self} are set"
            raise OptionError("mesh.auto", True, f"leave out mesh=auto, or {_SIZES}", problem)

    @property
    def sizes(self) -> list[int]:
        """The sizes in the order of `AXES`."""
        return [getattr(self, axis) for axis in AXES]

    def __str__(self) -> str:
        return ", ".join(f"{axis}={size}" for axis, size in zip(AXES, self.sizes, strict=True))


def make_mesh(shape: MeshShape, devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (by default all).

    Raises:
        OptionError: the sizes do not fit the number of devices.
    """
    devices = list(jax.devices()) if devices is None else devices
    sizes = shape.sizes
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if math.prod(sizes) != len(devices):
        problem = f"a mesh {shape} does not fit {len(devices)} devices"
        rule = f"the product of {_SIZES} must be {len(devices)}"
        raise OptionError("mesh", str(shape), rule, problem)
    return Mesh(_device_grid(devices, sizes), AXES)


def check_mesh(mesh: Mesh) -> None:
    """Raises UserError if a mesh of a caller is not as `make_mesh` makes it."""
    if mesh.axis_names != AXES or set(mesh.axis_types) != {AxisType.Auto}:
        raise UserError(
            f"mesh has the axes {', '.join(map(str, mesh.axis_names))}; make it by "
            "bert_jax.sharding.mesh.make_mesh(MeshShape(data=-1))"
        )


def batch_parts(mesh: Mesh) -> int:
    """The number of parts that devices have of a global batch: `data` × `fsdp`."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


@dataclasses.dataclass(frozen=True)
class BatchShare:
    """The rows of each global batch that a process makes.

    Attributes:
        index: index of its part among `count` equal parts of the batch.
        count: number of parts; lower than the number of processes if several hold the same rows.
    """

    index: int
    count: int


def share_of(grid: np.ndarray, process: int) -> BatchShare | None:
    """The rows of a batch on the devices of a process; None if they are not an equal part.

    Args:
        grid: devices, [data, fsdp, tensor].
        process: index of the process.
    """
    groups = grid.reshape(-1, grid.shape[-1])  # the devices of a group hold the same rows
    mine = [
        index
        for index, devices in enumerate(groups)
        if any(device.process_index == process for device in devices)
    ]
    if not mine or len(groups) % len(mine) or mine[0] % len(mine):
        return None
    if mine != list(range(mine[0], mine[0] + len(mine))):
        return None
    return BatchShare(mine[0] // len(mine), len(groups) // len(mine))


def one_device_mesh() -> Mesh:
    """The mesh of this process' first device."""
    return make_mesh(MeshShape(), jax.local_devices()[:1])


def programs_may_overlap(mesh: Mesh) -> bool:
    """Whether a program may be started on a mesh while another one is still running there.

    The CPU devices of a process share a thread pool. Two programs with collectives can take each
    other's threads and deadlock.
    """
    return mesh.size == 1 or mesh.devices.flat[0].platform != "cpu"


def device_bytes(tree: Any) -> int:
    """Bytes of a tree of shapes with shardings on one device."""
    return sum(
        array_bytes(leaf.sharding.shard_shape(leaf.shape), leaf.dtype)
        for leaf in jax.tree.leaves(tree)
    )


def array_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of an array."""
    # The dtype of random keys has no itemsize.
    return math.prod(shape) * getattr(dtype, "itemsize", 4)


def reported_memory(devices: Sequence[jax.Device]) -> int | None:
    """The bytes that a program may use on each of these devices; None: they do not report it.

    CPU devices share the memory of the machine.
    """
    device = next(other for other in devices if other.process_index == jax.process_index())
    if device.platform == "cpu":
        here = sum(other.process_index == device.process_index for other in devices)
        return host_memory() // here
    return (device.memory_stats() or {}).get("bytes_limit")


def host_memory() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def lack_of_memory(tree: Any, what: str) -> str:
    """Says that arrays do not fit in the memory of their devices; "" if they do, or may.

    XLA ends the process when the memory of a CPU does not suffice, or takes all of it.

    Args:
        tree: shapes with shardings on one mesh.
        what: name of the arrays in the message, a plural.
    """
    leaves = jax.tree.leaves(tree)
    devices = leaves[0].sharding.mesh.devices.flatten().tolist() if leaves else []
    needed = device_bytes(leaves)
    available = reported_memory(devices) if devices else None
    if available is None or needed <= available:
        return ""
    return (
        f"{what} need {needed / 2**30:,.1f} GiB of each device, which has "
        f"{available / 2**30:,.1f} GiB"
    )


@contextlib.contextmanager
def explain_out_of_memory(work: str, key: str, rule: str) -> Iterator[None]:
    """Replaces XLA's long message about a full device by one line with remedies.

    Args:
        work: the work that does not fit, such as "32 rows at a time".
        key: the option that the remedy changes first.
        rule: the remedy, see `OptionError`.

    Raises:
        OptionError: a device ran out of memory.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        problem = f"the memory of a device does not suffice for {work}: {first_line(error)}"
        raise OptionError(key, None, rule, problem) from error


def _device_grid(devices: list[jax.Device], sizes: list[int]) -> np.ndarray:
    """Devices as a grid, [data, fsdp, tensor], where each process has a part of the batch.

    The last axes communicate most, so their devices should be near each other: in one process,
    and on TPUs connected directly, as `mesh_utils` arranges them.
    """
    plain = np.asarray(sorted(devices, key=lambda device: device.process_index)).reshape(sizes)
    if devices[0].platform != "tpu":
        return plain
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    try:
        if slices == 1:
            grid = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
        else:  # slices are connected by a slower network: use it only between replicas
            within = (sizes[0] // slices, *sizes[1:])
            grid = mesh_utils.create_hybrid_device_mesh(
                within, (slices, 1, 1), devices, allow_split_physical_axes=True
            )
    except (AssertionError, NotImplementedError, ValueError):
        return plain  # sizes that do not match the slice
    processes = {device.process_index for device in devices}
    return plain if any(share_of(grid, process) is None for process in processes) else grid
