"""Three floors of a step, by hand."""

import jax
import pytest

from bert_jax.planning.hardware import HARDWARE
from bert_jax.planning.memory import Memory
from bert_jax.planning.step_time import StepTime, least_sent_bytes, memory_traffic, step_time
from bert_jax.sharding.mesh import MeshShape, make_mesh

# A million parameters of which each device has a quarter; moments are twice that.
SPLIT = Memory(parameters=1_000_000, optimizer=2_000_000, activations=5_000, temporaries=0)


def mesh(**sizes: int):
    shape = MeshShape(**{"data": 1} | sizes)
    return make_mesh(shape, jax.devices()[:1] * (shape.data * shape.fsdp * shape.tensor))


def test_each_part_at_its_peak():
    found = step_time(
        HARDWARE["v5e"],
        devices=4,
        dtype="bfloat16",
        program_flops=4 * 197e12,
        moved_bytes=819e9 / 2,
        sent_bytes=200e9 / 4,
    )
    assert found == StepTime(compute=1.0, memory=0.5, interconnect=0.25)
    assert found.floor == 1.0


def test_no_floor_without_peaks():
    found = step_time(
        HARDWARE["cpu"],
        devices=1,
        dtype="float32",
        program_flops=1.0,
        moved_bytes=1.0,
        sent_bytes=1.0,
    )
    assert found.floor is None


def test_memory_traffic():
    # 250,000 parameters here: the optimizer moves 28 bytes of each, and keeps a quarter of them.
    assert memory_traffic(SPLIT, mesh(fsdp=4), itemsize=2, microbatches=3) == (
        28 * 250_000 + 3 * (2 * 2 * 1_000_000) + 3 * 2 * 5_000
    )


@pytest.mark.parametrize(
    ("sizes", "bytes_sent"),
    [
        ({}, 0),
        ({"data": 8}, 2 * 7 / 8 * 500_000),
        ({"fsdp": 4}, 2 * 3 / 4 * 2_000_000),
        ({"data": 2, "fsdp": 4}, 2 * 1 / 2 * 500_000 + 2 * 3 / 4 * 2_000_000),
        ({"tensor": 2}, 4 * 12 * 1000 * 2 * 2 * 1 / 2),
    ],
)
def test_what_must_be_sent(sizes, bytes_sent):
    # 250,000 numbers of two bytes on each device.
    found = least_sent_bytes(SPLIT, mesh(**sizes), itemsize=2, layer_activations=1000, layers=12)
    assert found == bytes_sent
