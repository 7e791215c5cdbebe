"""Multi-host helpers: agreement and global batches."""

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from bert_jax.errors import OptionError
from bert_jax.sharding.distributed import A_WEEK, coordination
from bert_jax.sharding.mesh import BatchShare, batch_parts, share_of
from bert_jax.sharding.rules import batch_sharding

_barriers, _values = itertools.count(), itertools.count()


def is_main_host() -> bool:
    """Whether this process prints and writes logs."""
    return jax.process_index() == 0


@contextlib.contextmanager
def main_host_first() -> Iterator[None]:
    """The main host runs the block before the other hosts, which then see the files it wrote."""
    if not is_main_host():
        wait_for_all_hosts("the main host")
    yield
    if is_main_host():
        wait_for_all_hosts("the main host")


def wait_for_all_hosts(what: str) -> None:
    """Returns when all processes have called it; all must make such calls in the same order."""
    if jax.process_count() > 1:
        coordination().wait_at_barrier(f"bert_jax/{next(_barriers)}: {what}", A_WEEK)


def from_main_host(value: Any) -> Any:
    """The main host's value on all hosts, so that all agree; any JSON, floats bitwise.

    Other processors may round differently, and a new file may be visible later on other hosts.
    """
    if jax.process_count() == 1:
        return value
    key = f"bert_jax/value/{next(_values)}"
    if is_main_host():
        coordination().key_value_set(key, json.dumps(value))
    return json.loads(coordination().blocking_key_value_get(key, A_WEEK))


def from_all_hosts(value: Any) -> list[Any]:
    """The values of all hosts, in their order, on each host; any JSON."""
    if jax.process_count() == 1:
        return [value]
    key = f"bert_jax/value/{next(_values)}"
    coordination().key_value_set(f"{key}/{jax.process_index()}", json.dumps(value))
    texts = (
        coordination().blocking_key_value_get(f"{key}/{index}", A_WEEK)
        for index in range(jax.process_count())
    )
    return [json.loads(text) for text in texts]


def batch_share(mesh: Mesh) -> BatchShare:
    """The rows of each global batch on the devices of this process.

    Raises:
        OptionError: they are not one of several equal parts.
    """
    share = share_of(mesh.devices, jax.process_index())
    if share is None:
        sizes = ", ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
        raise OptionError(
            "mesh.tensor",
            mesh.shape["tensor"],
            "choose a {mesh.tensor} that divides the devices of a process, or is a multiple of "
            "them",
            problem=f"a mesh {sizes} does not fit {jax.process_count()} processes of "
            f"{jax.local_device_count()} devices each",
        )
    return share


def check_batch_size(global_batch_size: int, mesh: Mesh, microbatches: int = 1) -> None:
    """Checks that a global batch can be divided into equal parts.

    Raises:
        UserError: the mesh, the micro-batches or the hosts do not divide the batch.
    """
    parts = batch_parts(mesh)
    if global_batch_size % (parts * microbatches):
        raise OptionError(
            "train.global_batch_size",
            global_batch_size,
            f"it must be a multiple of {parts} devices ({{mesh.data}} × {{mesh.fsdp}}) "
            f"× {microbatches} micro-batches",
        )
    batch_share(mesh)


def to_global(mesh: Mesh, rows: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """The global batch, sharded over the mesh, from the rows that this process made."""
    sharding = batch_sharding(mesh)
    return {
        key: jax.make_array_from_process_local_data(sharding, value) for key, value in rows.items()
    }


def same_on_all_hosts(mesh: Mesh, arrays: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """The global batch, sharded over the mesh, from all rows; every process has all of them."""
    sharding = batch_sharding(mesh)
    return {
        key: jax.make_array_from_callback(value.shape, sharding, value.__getitem__)
        for key, value in arrays.items()
    }


def fetch(arrays: Any) -> Any:
    """A tree of arrays as complete NumPy arrays on every process.

    All processes must call it for arrays that are split over several of them.
    """
    if jax.process_count() == 1:
        return jax.device_get(arrays)

    def whole(leaf: Any) -> Any:
        if getattr(leaf, "is_fully_addressable", True):
            return jax.device_get(leaf)
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.tree.map(whole, arrays)
