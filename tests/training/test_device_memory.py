"""Too little memory of a device, for real."""

import jax
import jax.numpy as jnp
import pytest

from bert_jax.errors import UserError
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import explain_out_of_memory


def test_too_little_memory_is_one_line_with_its_remedy():
    options = TrainOptions(global_batch_size=64, microbatches=2)
    mesh = make_mesh(MeshShape(data=1), jax.devices()[:1])
    with pytest.raises(UserError) as found, explain_out_of_memory(options, mesh):
        jax.block_until_ready(jnp.zeros(1 << 50, jnp.int8))
    (line,) = str(found.value).splitlines()
    assert line.startswith("the memory of a device does not suffice for 32 rows at a time")
    assert "RESOURCE_EXHAUSTED" in line
    assert "set model.remat=full" in line


def test_other_errors_pass():
    mesh = make_mesh(MeshShape(data=1), jax.devices()[:1])
    with pytest.raises(ZeroDivisionError), explain_out_of_memory(TrainOptions(), mesh):
        raise ZeroDivisionError
