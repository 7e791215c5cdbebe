"""The memory of devices: what arrays need, and what there is."""

import math
import os
from collections.abc import Sequence
from typing import Any

import jax


def device_bytes(tree: Any) -> int:
    """Bytes of a tree of shapes with shardings on one device."""
    return sum(
        array_bytes(leaf.sharding.shard_shape(leaf.shape), leaf.dtype)
        for leaf in jax.tree.leaves(tree)
    )


def array_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of an array."""
    # The dtype of random keys has no itemsize.
    return math.prod(shape) * getattr(dtype, "itemsize", 4)


def reported_memory(devices: Sequence[jax.Device]) -> int | None:
    """The bytes that a program may use on each of these devices; None: they do not report it.

    CPU devices share the memory of the machine.
    """
    device = next(other for other in devices if other.process_index == jax.process_index())
    if device.platform == "cpu":
        here = sum(other.process_index == device.process_index for other in devices)
        return host_memory() // here
    return (device.memory_stats() or {}).get("bytes_limit")


def host_memory() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def lack_of_memory(tree: Any, what: str) -> str:
    """Says that arrays do not fit in the memory of their devices; "" if they do, or may.

    XLA ends the process when the memory of a CPU does not suffice, or takes all of it.

    Args:
        tree: shapes with shardings on one mesh.
        what: name of the arrays in the message, a plural.
    """
    leaves = jax.tree.leaves(tree)
    devices = leaves[0].sharding.mesh.devices.flatten().tolist() if leaves else []
    needed = device_bytes(leaves)
    available = reported_memory(devices) if devices else None
    if available is None or needed <= available:
        return ""
    return (
        f"{what} need {needed / 2**30:,.1f} GiB of each device, which has "
        f"{available / 2**30:,.1f} GiB"
    )
