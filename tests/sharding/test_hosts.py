"""Rows of a host, and how they become a global batch."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bert_jax.errors import UserError
from bert_jax.sharding.hosts import check_batch_size, is_main_host, to_global
from bert_jax.sharding.mesh import MeshShape, make_mesh


def mesh_of(count: int, **sizes):
    return make_mesh(MeshShape(**sizes), jax.devices()[:1] * count)


@pytest.mark.parametrize(
    ("mesh", "microbatches", "divisor"),
    [
        ((1, {}), 1, 1),
        ((8, {}), 1, 8),
        ((8, {"fsdp": 2}), 2, 16),
        # tensor does not split the batch
        ((8, {"data": 1, "tensor": 8}), 1, 1),
    ],
)
def test_batches_that_divide(mesh, microbatches, divisor):
    def divides(batch):
        try:
            check_batch_size(batch, mesh_of(mesh[0], **mesh[1]), microbatches)
        except UserError:
            return False
        return True

    assert [*filter(divides, range(1, 33))] == [*range(divisor, 33, divisor)]


@pytest.mark.parametrize(
    ("batch", "mesh", "microbatches", "message"),
    [
        (12, (8, {}), 1, "^train.global_batch_size is 12; it must be a multiple of 8 devices"),
        (8, (8, {"fsdp": 4}), 2, r"8 devices \(mesh.data × mesh.fsdp\) × 2 micro-batches"),
        (10, (1, {}), 4, "10; it must be a multiple of 1 devices .* × 4 micro-batches"),
    ],
)
def test_batches_that_do_not_divide(batch, mesh, microbatches, message):
    with pytest.raises(UserError, match=message):
        check_batch_size(batch, mesh_of(mesh[0], **mesh[1]), microbatches)


def test_rows_become_a_global_batch():
    rows = {"ids": np.arange(6, dtype=np.int32).reshape(2, 3), "weights": np.ones(2, np.float32)}
    actual = to_global(make_mesh(MeshShape()), rows)
    assert actual["ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert actual["ids"].dtype == np.int32
    assert actual["weights"].sharding.spec == PartitionSpec(("data", "fsdp"))
    assert is_main_host()
