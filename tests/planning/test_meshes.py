"""Candidate meshes, and the choice among them."""

import jax
import pytest

from bert_jax.errors import UserError
from bert_jax.planning.hardware import parse_slice
from bert_jax.planning.meshes import (
    candidate_meshes,
    choose_mesh,
    device_memory,
    parse_mesh,
    usable_memory,
)
from bert_jax.planning.training_on_mesh import label
from bert_jax.sharding.mesh import MeshShape, make_mesh

# Three layers of width 256: 12 MB of parameters, 48 MB with moments and gradients; the batch of
# 8 × 16 tokens is small beside them.
WIDE = {
    "model__hidden_size": 256,
    "model__num_hidden_layers": 3,
    "model__intermediate_size": 1024,
}


@pytest.fixture
def choose(training_of):
    def chosen(devices: int, memory: float, **keys: object) -> MeshShape:
        training = training_of("", **WIDE | keys)
        return choose_mesh(training, jax.devices()[:1] * devices, int(memory * 1e6))

    return chosen


TWO_ROWS = {"train__global_batch_size": 2}  # they cannot go to eight devices
MANY_ROWS = {"train__global_batch_size": 512, "data__length": 24}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "memory", "keys", "expected"),
    [
        (8, 100, {}, MeshShape(data=8)),
        (1, 100, {}, MeshShape(data=1)),
        # The 12 MB that are computed with are whole on each device.
        (8, 45, {}, MeshShape(data=4, fsdp=2)),
        (8, 30, {}, MeshShape(data=2, fsdp=4)),
        (8, 22, {}, MeshShape(data=1, fsdp=8)),
        (8, 20, TWO_ROWS, MeshShape(data=2, tensor=4)),
        (8, 12, TWO_ROWS, MeshShape(data=1, fsdp=2, tensor=4)),
        # With a sum of gradients: 60 MB of state, and a little.
        (8, 100, MANY_ROWS | {"train__microbatches": 32}, MeshShape(data=8)),
    ],
)
def test_the_chosen_mesh(choose, devices, memory, keys, expected):
    assert choose(devices, memory, **keys) == expected


@pytest.mark.slow
def test_a_training_that_fits_no_mesh_is_an_error_with_a_remedy(choose):
    # No mesh makes the activations smaller: each device has its rows.
    with pytest.raises(UserError, match="raise train.microbatches"):
        choose(8, 100, **MANY_ROWS)
    message = (
        r"mesh=auto: a step needs about 0.0 GiB of each device, even with fsdp=2,tensor=4; 0.0 "
        r"are available; set model.remat=full, or raise train.microbatches \(now 1\) of a new run"
    )
    with pytest.raises(UserError, match=message):
        choose(8, 1)
    with pytest.raises(
        UserError, match="train.global_batch_size is 7; it must be a multiple of 3 devices"
    ):
        choose(3, 100, train__global_batch_size=7)


@pytest.mark.parametrize(
    ("devices", "labels"),
    [
        (1, ["data=1"]),
        (8, ["data=8", "data=4,fsdp=2", "fsdp=8", "data=4,tensor=2", "data=2,tensor=4"]),
        (
            256,
            ["data=256", "data=16,fsdp=16", "fsdp=256", "data=128,tensor=2", "data=64,tensor=4"],
        ),
        (6, ["data=6", "data=3,fsdp=2", "fsdp=6", "data=3,tensor=2"]),
    ],
)
def test_one_of_each_kind(devices, labels):
    result = candidate_meshes(devices)
    assert [label(shape) for shape in result] == labels
    for shape in result:
        make_mesh(shape, jax.devices()[:1] * devices)


def test_meshes_as_they_are_written():
    assert parse_mesh("fsdp=64,data=4") == MeshShape(data=4, fsdp=64)
    assert parse_mesh("tensor=2") == MeshShape(data=-1, tensor=2)
    for wrong in ("fdsp=8", "data", "data=x", "data=8,data=4", "data=8 fsdp=2", "data=²"):
        with pytest.raises(UserError, match="is not AXIS=SIZE of one of data, fsdp, tensor; write"):
            parse_mesh(wrong)


def test_memory_of_devices():
    assert usable_memory(parse_slice("v5e:2x4")) == pytest.approx(15.7 * 2**30, rel=0.01)
    here = device_memory(jax.devices())
    assert usable_memory(parse_slice(f"cpu:{len(jax.devices())}")) == here > 2**26
