"""Random numbers that are a pure function of a key and a position.

A batch must not depend on the host or worker that makes it, nor on earlier batches. So there is no
state: every number is a hash of a key and of a position, and a shuffle is a permutation that can be
evaluated at a single index.
"""

import math

import numpy as np

# Increment and multipliers of SplitMix64 (Steele, Lea and Flood, 2014, figure 17).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

# With fewer rows and columns a Feistel network does not give all orders equally often.
_FEISTEL_MIN_SIZE = 64


def mix(values: np.ndarray) -> np.ndarray:
    """Scrambles uint64 values of any shape: a bijection in which each bit depends on all bits."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def random_bits(keys: np.ndarray, positions: np.ndarray | int) -> np.ndarray:
    """64 random bits for each key and position, uint64; keys and positions broadcast.

    Args:
        keys: uint64, for example one key per example.
        positions: non-negative integers, index of the number in the sequence of a key.
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended; NumPy warns for scalars
        offsets = (np.asarray(positions).astype(np.uint64) + np.uint64(1)) * _GOLDEN
        return mix(keys + offsets)


def derive_key(*parts: int) -> np.ndarray:
    """A key, uint64 [1], from integers such as (seed, epoch)."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = random_bits(key, np.array([part]))
    return key


def uniform(bits: np.ndarray) -> np.ndarray:
    """Random bits, uint64 → float64 in [0, 1)."""
    return (bits >> np.uint64(11)) * 2.0**-53


def uniform_at(keys: np.ndarray, positions: np.ndarray | int) -> np.ndarray:
    """The numbers of `random_bits` as float64 in [0, 1)."""
    return uniform(random_bits(keys, positions))


def integers_below(bits: np.ndarray, limits: np.ndarray | int) -> np.ndarray:
    """Random bits, uint64 → int64 in [0, limit); every limit is at least 1."""
    return (uniform(bits) * limits).astype(np.int64)


def integers_at(
    keys: np.ndarray, positions: np.ndarray | int, limits: np.ndarray | int
) -> np.ndarray:
    """The numbers of `random_bits` as int64 in [0, limit), see `integers_below`."""
    return integers_below(random_bits(keys, positions), limits)


def permute(indices: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Applies a random permutation of 0 … size-1 to each index.

    A short list is sorted by random bits: the result is the rank of the index. In a longer one, an
    index is written as (row, column) of a nearly square table that holds `size` cells, and a
    Feistel network of six rounds moves the row by a hash of the column and the column by a hash of
    the row. The few results beyond `size` go through it again ("cycle walking"). Source: Black and
    Rogaway, Ciphers with arbitrary finite domains, 2002.

    Args:
        indices: int64 [B], each in [0, size).
        size: number of items to shuffle.
        keys: uint64 [B] or [1]; each key gives another permutation.

    Returns:
        int64 [B], each in [0, size).
    """
    if size < _FEISTEL_MIN_SIZE:
        bits = random_bits(np.reshape(keys, (-1, 1)), np.arange(size))  # [B or 1, size]
        own = random_bits(keys, indices)
        return (bits < own[:, None]).sum(axis=1)
    rows = np.uint64(math.isqrt(size - 1) + 1)
    columns = np.uint64(-(-size // int(rows)))
    keys = np.broadcast_to(keys, indices.shape)
    result = indices.astype(np.uint64)
    walking = np.arange(len(indices))
    while len(walking):
        row, column = np.divmod(result[walking], columns)
        for number in range(0, 6, 2):
            row = (row + mix(column ^ random_bits(keys[walking], number))) % rows
            column = (column + mix(row ^ random_bits(keys[walking], number + 1))) % columns
        result[walking] = row * columns + column
        walking = walking[result[walking] >= size]
    return result.astype(np.int64)
