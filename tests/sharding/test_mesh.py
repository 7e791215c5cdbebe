"""Meshes over one device and over stand-ins for eight."""

import jax
import pytest

from bert_jax.errors import UserError
from bert_jax.sharding.mesh import AXES, MeshShape, make_mesh


def devices(count: int) -> list[jax.Device]:
    """A mesh only arranges devices, so one may stand for many."""
    return jax.devices()[:1] * count


@pytest.mark.parametrize(
    ("shape", "count", "expected"),
    [
        (MeshShape(), 1, {"data": 1, "fsdp": 1, "tensor": 1}),
        (MeshShape(), 8, {"data": 8, "fsdp": 1, "tensor": 1}),
        (MeshShape(data=-1, fsdp=2, tensor=2), 8, {"data": 2, "fsdp": 2, "tensor": 2}),
        (MeshShape(data=2, fsdp=-1, tensor=1), 6, {"data": 2, "fsdp": 3, "tensor": 1}),
        (MeshShape(data=4, fsdp=1, tensor=2), 8, {"data": 4, "fsdp": 1, "tensor": 2}),
    ],
)
def test_shapes(shape, count, expected):
    mesh = make_mesh(shape, devices(count))
    assert dict(mesh.shape) == expected
    assert mesh.axis_names == AXES


def test_the_default_is_all_devices():
    assert make_mesh(MeshShape()).size == len(jax.devices())


@pytest.mark.parametrize(
    ("shape", "count", "message"),
    [
        (
            MeshShape(data=3),
            8,
            "mesh.data=3, mesh.fsdp=1, mesh.tensor=1 does not fit 8 devices: the product must be 8",
        ),
        (MeshShape(data=-1, fsdp=3), 8, "mesh.data=-1, mesh.fsdp=3, mesh.tensor=1 does not fit 8"),
        (MeshShape(data=-1, fsdp=-1), 8, "sizes are at least 1, and only one may be -1"),
        (MeshShape(data=0), 8, "sizes are at least 1, and only one may be -1"),
        (MeshShape(tensor=-2), 8, "sizes are at least 1, and only one may be -1"),
        (MeshShape(data=16), 8, "the product must be 8"),
    ],
)
def test_sizes_that_do_not_fit(shape, count, message):
    with pytest.raises(UserError, match=message):
        make_mesh(shape, devices(count))


def test_auto_takes_no_sizes():
    assert dict(make_mesh(MeshShape(auto=True), devices(8)).shape)["data"] == 8
    with pytest.raises(
        UserError, match="mesh=auto chooses the sizes, but mesh.data=-1, mesh.fsdp=2"
    ):
        MeshShape(fsdp=2, auto=True)
