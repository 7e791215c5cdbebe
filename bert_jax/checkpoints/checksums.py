"""Checksums of arrays, the same on any mesh: a sum modulo 2³² does not depend on its order."""

import math
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def checksums(tree: Any) -> dict[str, int]:
    """Σ bits · (2 i + 1) mod 2³² of each array, by its path, as "params/bert/pooler/kernel".

    i is the index of an element in row-major order. The factors are odd, so they have an inverse:
    a change of a single element always shows, and of several with a probability of 1 - 2⁻³².
    Each host adds up its own shards; with several hosts, all call it and get all checksums.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    sums = np.array([_sum_of_own_shards(leaf) for _, leaf in leaves], np.uint32)
    if jax.process_count() > 1:
        is_whole = [leaf.is_fully_addressable for _, leaf in leaves]  # each host has all of it
        all_hosts = np.asarray(process_allgather(sums)).sum(axis=0, dtype=np.uint32)
        sums = np.where(is_whole, sums, all_hosts)
    return dict(zip(names, sums.tolist(), strict=True))


def _sum_of_own_shards(array: jax.Array) -> int:
    """The part of this process; of equal shards on several devices one counts."""
    total = 0
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            starts = [
                part.indices(size)[0] for part, size in zip(shard.index, array.shape, strict=True)
            ]
            total += _sum(np.asarray(shard.data), starts, array.shape)
    return total % 2**32


def _sum(block: np.ndarray, starts: list[int], shape: tuple[int, ...]) -> int:
    """The sum over a block of an array, from the sums of its rows and of its columns.

    With i = r + c, of which r depends on the row alone and c on the column alone, it is
    Σ (2 r + 1) · (sum of row r) + Σ 2 c · (sum of column c).
    """
    words = np.ascontiguousarray(block).view(_WORDS[block.dtype.itemsize])
    words = words.reshape(block.shape[0] if block.ndim else 1, -1)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    offsets = [
        (np.arange(size, dtype=np.uint64) + start) * stride
        for start, size, stride in zip(starts, block.shape, strides, strict=True)
    ]
    rows = offsets[0] if offsets else np.zeros(1, np.uint64)
    columns = np.zeros(1, np.uint64)
    for offset in offsets[1:]:
        columns = np.add.outer(columns, offset).reshape(-1)
    total = (2 * rows + 1) * words.sum(axis=1, dtype=np.uint64)
    return int(total.sum()) + int((2 * columns * words.sum(axis=0, dtype=np.uint64)).sum())
