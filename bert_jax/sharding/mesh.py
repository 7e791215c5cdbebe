"""The mesh: all devices of a run as a named grid."""

import dataclasses

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.errors import UserError

AXES = ("data", "fsdp", "tensor")


@dataclasses.dataclass(frozen=True)
class MeshShape:
    """The section `mesh` of a config: sizes of the axes; one may be -1: all devices that are left.

    Attributes:
        data: replicas of the model, each with its part of the batch.
        fsdp: parts of the parameters, each with its part of the batch too.
        tensor: parts of each layer's heads and feed-forward width.
        auto: the sizes are chosen by what fits, see `planning.meshes.choose_mesh`; where nothing is
            trained, every device has the whole model. In a config, `mesh=auto` is short for it.
    """

    data: int = -1
    fsdp: int = 1
    tensor: int = 1
    auto: bool = False

    def __post_init__(self) -> None:
        if self.auto and (self.data, self.fsdp, self.tensor) != (-1, 1, 1):
            raise UserError(
                f"mesh=auto chooses the sizes, but mesh.data={self.data}, mesh.fsdp={self.fsdp}, "
                f"mesh.tensor={self.tensor} are given; leave out one or the other"
            )


def make_mesh(shape: MeshShape, devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (all of them by default).

    Raises:
        UserError: the sizes do not fit the number of devices.
    """
    devices = list(jax.devices()) if devices is None else devices
    sizes = [getattr(shape, axis) for axis in AXES]
    wanted = ", ".join(f"mesh.{axis}={size}" for axis, size in zip(AXES, sizes, strict=True))
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise UserError(f"{wanted}: sizes are at least 1, and only one may be -1 (the rest)")
    known = int(np.prod([size for size in sizes if size != -1]))
    if -1 in sizes and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if np.prod(sizes) != len(devices):
        raise UserError(
            f"{wanted} does not fit {len(devices)} devices: the product must be {len(devices)}"
        )
    return Mesh(np.asarray(devices).reshape(sizes), AXES)


def one_device_mesh() -> Mesh:
    """The mesh of this process' first device."""
    return make_mesh(MeshShape(), jax.local_devices()[:1])


def programs_may_overlap(mesh: Mesh) -> bool:
    """Whether a program may be started on a mesh while another still runs there.

    The CPU devices of a process share a pool of threads. Two programs with collectives at once can
    leave each other without a thread, and wait for ever.
    """
    return mesh.size == 1 or mesh.devices.flat[0].platform != "cpu"
