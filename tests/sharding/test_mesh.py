"""Meshes over one device and over one device repeated eight times."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from bert_jax.errors import OptionError, UserError
from bert_jax.sharding.mesh import (
    AXES,
    BatchShare,
    MeshShape,
    make_mesh,
    reported_memory,
    share_of,
)


def devices(count: int) -> list[jax.Device]:
    """A mesh only arranges devices, so one device may be repeated."""
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


def test_cpu_devices_share_the_memory_of_their_machine(monkeypatch):
    monkeypatch.setattr("bert_jax.sharding.mesh.host_memory", lambda: 80)
    here, elsewhere = (SimpleNamespace(platform="cpu", process_index=n) for n in (0, 1))
    assert reported_memory([elsewhere, here, here]) == 40


def test_the_default_is_all_devices():
    assert make_mesh(MeshShape()).size == len(jax.devices())


@pytest.mark.parametrize(
    ("shape", "count", "message"),
    [
        (
            {"data": 3},
            8,
            "data=3, fsdp=1, tensor=1 does not fit 8 devices; .* must be 8$",
        ),
        ({"data": -1, "fsdp": 3}, 8, "data=-1, fsdp=3, tensor=1 does not fit 8"),
        ({"data": -1, "fsdp": -1}, 8, "must be at least 1, and only one may be -1"),
        ({"data": 0}, 8, "must be at least 1, and only one may be -1"),
        ({"tensor": -2}, 8, "must be at least 1, and only one may be -1"),
        ({"data": 16}, 8, "the product of mesh.data, mesh.fsdp and mesh.tensor must be 8"),
    ],
)
def test_sizes_that_do_not_fit(shape, count, message):
    with pytest.raises(OptionError, match=message) as error:
        make_mesh(MeshShape(**shape), devices(count))
    assert error.value.key == "mesh"


def test_auto_takes_no_sizes():
    assert dict(make_mesh(MeshShape(auto=True), devices(8)).shape)["data"] == 8
    with pytest.raises(UserError, match="mesh=auto chooses the sizes, but data=-1, fsdp=2"):
        MeshShape(fsdp=2, auto=True)


@dataclasses.dataclass(frozen=True)
class Device:
    """What an arrangement asks of a device."""

    id: int
    process_index: int
    platform: str = "cpu"


def test_devices_of_a_process_stand_together():
    # As on a slice of 4 × 2 chips: each process has a square of them, numbered row by row.
    listed = [Device(number, number % 4 // 2) for number in range(8)]
    mesh = make_mesh(MeshShape(tensor=2), listed)
    assert [[device.id for device in group] for group in mesh.devices[:, 0]] == [
        [0, 1],
        [4, 5],
        [2, 3],
        [6, 7],
    ]
    assert [share_of(mesh.devices, process) for process in (0, 1)] == [
        BatchShare(0, 2),
        BatchShare(1, 2),
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((8, 1, 1), [(0, 4), (1, 4), (2, 4), (3, 4)]),
        ((2, 2, 2), [(0, 4), (1, 4), (2, 4), (3, 4)]),
        # Two processes hold the same rows, and then all of them.
        ((2, 1, 4), [(0, 2), (0, 2), (1, 2), (1, 2)]),
        ((1, 1, 8), [(0, 1)] * 4),
    ],
)
def test_the_rows_of_four_processes_of_two_devices(sizes, expected):
    grid = np.array([Device(number, number // 2) for number in range(8)]).reshape(sizes)
    actual = [share_of(grid, process) for process in range(4)]
    assert actual == [BatchShare(*share) for share in expected]


def test_rows_that_are_no_equal_part():
    apart = np.array([Device(number, number % 2) for number in range(8)])
    assert share_of(apart.reshape(8, 1, 1), 0) is None
    uneven = np.array([Device(number, number // 3) for number in range(6)])
    assert share_of(uneven.reshape(3, 1, 2), 0) is None
    assert share_of(uneven.reshape(6, 1, 1), 0) == BatchShare(0, 2)
    # Two rows of six are a third, but the second and third are none of the thirds.
    shifted = np.array([Device(number, int(number not in (1, 2))) for number in range(6)])
    assert share_of(shifted.reshape(6, 1, 1), 0) is None
