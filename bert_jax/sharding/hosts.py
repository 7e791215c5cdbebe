"""What a process of a run knows about the others, and how its rows join the global batch."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.errors import UserError
from bert_jax.sharding.rules import batch_sharding


def is_main_host() -> bool:
    """Whether this process prints and writes logs."""
    return jax.process_index() == 0


def rows_per_host(global_batch_size: int, mesh: Mesh, microbatches: int = 1) -> int:
    """How many rows of each global batch this process makes.

    Raises:
        UserError: the mesh or the micro-batches do not divide the batch.
    """
    parts = mesh.shape["data"] * mesh.shape["fsdp"]
    if global_batch_size % (parts * microbatches):
        raise UserError(
            f"train.global_batch_size {global_batch_size} is not a multiple of {parts} devices "
            f"(mesh.data × mesh.fsdp) × {microbatches} micro-batches; change one of them"
        )
    return global_batch_size // jax.process_count()


def to_global(mesh: Mesh, rows: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """The global batch, sharded over the mesh, from the rows that this process made."""
    sharding = batch_sharding(mesh)
    return {
        key: jax.make_array_from_process_local_data(sharding, value) for key, value in rows.items()
    }


def same_on_all_hosts(mesh: Mesh, arrays: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """A global batch, sharded over the mesh, of which every process has all rows."""
    sharding = batch_sharding(mesh)
    return {
        key: jax.make_array_from_callback(value.shape, sharding, value.__getitem__)
        for key, value in arrays.items()
    }


def fetch(arrays: Any) -> Any:
    """A tree of arrays as NumPy arrays, whole on every process."""
    if jax.process_count() == 1:
        return jax.device_get(arrays)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(arrays, tiled=True)
