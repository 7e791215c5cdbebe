"""Three floors of a step, by hand."""

import jax
import pytest

from bert_jax.planning.hardware import HARDWARE
from bert_jax.planning.step_time import (
    OwnParameters,
    StepTime,
    least_sent_bytes,
    memory_traffic,
    own_parameters,
    step_time,
)
from bert_jax.sharding.mesh import MeshShape, make_mesh

OWN = OwnParameters(split=1000, whole=100)


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
    # The optimizer moves 28 bytes of each of 500 that it updates; three micro-batches read 4,100
    # twice.
    assert memory_traffic(OWN, 8 * 500, 5000, mesh(fsdp=4), itemsize=2, microbatches=3) == (
        28 * 500 + 3 * (2 * 2 * 4100) + 3 * 2 * 5000
    )


@pytest.mark.parametrize(
    ("sizes", "numbers_sent"),
    [
        ({}, 0),
        ({"data": 8}, 2 * 7 / 8 * 1100),
        ({"fsdp": 4}, 2 * 3 * 1000 + 2 * 3 / 4 * 100),
        ({"data": 2, "fsdp": 4}, 2 * 1 / 2 * 1000 + 2 * 3 * 1000 + 2 * 7 / 8 * 100),
        ({"tensor": 2}, 4 * 12 * 500 * 2 * 1 / 2),
    ],
)
def test_what_must_be_sent(sizes, numbers_sent):
    found = least_sent_bytes(OWN, mesh(**sizes), itemsize=2, layer_activations=500, layers=12)
    assert found == 2 * numbers_sent


def test_parameters_of_a_device(lay_out):
    training = lay_out("h100:8", MeshShape(data=2, fsdp=4))
    found, total = own_parameters(training.abstract.params), lay_out("h100:1", MeshShape())
    count = sum(leaf.size for leaf in jax.tree.leaves(total.abstract.params))
    assert found.split * 4 + found.whole == count
    # LayerNorms and the biases of what is not D wide: those of query, key, value (32), the first
    # feed-forward (64), pooler and word head (32), words (96), sentences (2).
    assert found.whole == 2 * 32 * 6 + 2 * (3 * 32 + 64) + 2 * 32 + 96 + 2
