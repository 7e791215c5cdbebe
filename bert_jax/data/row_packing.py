"""Decides which short rows share a packed row, and which shapes batches of packed rows have.

Every shape is compiled, so there should be few; every position without a token is wasted work, so
they should fit. The first batches of a training decide.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from bert_jax.data.pipeline import Batch
from bert_jax.models.kernels import length_multiple

# Packed rows may be longer than the rows of the batch by these factors, rounded up to a multiple of
# `_LENGTH_MULTIPLE` tokens, which also suits the attention kernels.
_LENGTH_FACTORS = (1.125, 1.25)
_LENGTH_MULTIPLE = 8

# At this length the terms that grow with its square take as long as all others. (The same
# number of tokens takes 1, 0.96, 1.11, 1.41, 1.48 in rows of 96, 128, 192, 256, 384:
# all-MiniLM-L6-v2, trained on a CPU.)
_EQUAL_WORK_LENGTH = 512

# Another shape is worth its compilation if it saves the work of this number of batches. (On a CPU,
# all-MiniLM-L6-v2 takes 0.4 s for 32 sentences, the compilation 5 s; in bfloat16 0.3 s and 7 s.)
_MIN_SAVED_BATCHES = 512 / 48

# For a batch with more rows than any sample, R is a multiple of this share of its rows.
_PARTS = 8


@dataclasses.dataclass(frozen=True)
class _Shapes:
    """The shapes of packed rows for batches of one length.

    Attributes:
        length: U, tokens of a packed row.
        counts: values that R, the number of packed rows, may have; ascending.
    """

    length: int
    counts: tuple[int, ...] = ()

    def rows(self, needed: int, batch_rows: int) -> int:
        """The value of R for a batch that needs this many packed rows."""
        step = max(1, batch_rows // _PARTS)
        beyond = min(-(-needed // step) * step, batch_rows)
        return next((count for count in self.counts if count >= needed), beyond)


class RowPacker:
    """Packs several short rows of a batch into one."""

    def __init__(self, samples: Iterable[Batch] = ()) -> None:
        """Chooses the shapes.

        Args:
            samples: typical batches; without any, packed rows are as long as the rows of the batch,
                and R is a multiple of an eighth of the number of its rows.
        """
        self._samples: dict[int, list[np.ndarray]] = defaultdict(list)
        for batch in samples:
            self._samples[batch["attention_mask"].shape[-1]].append(_lengths(batch))
        tokens = [lengths.sum() for batches in self._samples.values() for lengths in batches]
        self._worth = _MIN_SAVED_BATCHES * float(np.mean(tokens)) if tokens else 0.0
        self._shapes: dict[tuple[int, int], _Shapes] = {}

    def pack(self, batch: Batch, parts: int = 1) -> Batch:
        """Adds `pack_indices` and `unpack_indices` to a batch, see `models.packed_rows.PackedRows`.

        Args:
            batch: batch with `attention_mask` int32 [B, …, T], 1 for the tokens of a text and 0 for
                padding after them.
            parts: G, the number of parts that are packed separately; part g has the rows g, g + G …

        Returns:
            The batch with `pack_indices` int32 [G, R, U] and `unpack_indices` int32 [B, …, T].
        """
        length = batch["attention_mask"].shape[-1]
        part_lengths = _in_parts(_lengths(batch), parts)
        texts = len(part_lengths[0])
        shapes = self._shapes_of(length, parts)
        packings = [_starts(lengths, shapes.length) for lengths in part_lengths]
        if shapes.rows(_most(packings), texts) * shapes.length**2 > texts * length**2:
            # Few rows are short, and the attention of longer rows would take more memory than the
            # attention of the unpacked batch.
            shapes = _Shapes(length)
            packings = [_starts(lengths, length) for lengths in part_lengths]
        rows = shapes.rows(_most(packings), texts)
        pack_indices = np.full((parts, rows, shapes.length), -1, np.int32)
        unpack_indices = np.full(batch["attention_mask"].shape, -1, np.int32)
        for part, (lengths, (starts, _)) in enumerate(zip(part_lengths, packings, strict=True)):
            unpacked = np.full((texts, length), -1, np.int32)
            for text, start in starts.items():
                tokens = np.arange(lengths[text], dtype=np.int32)
                pack_indices[part].reshape(-1)[start + tokens] = text * length + tokens
                unpacked[text, tokens] = start + tokens
            part_indices = unpack_indices[part::parts]
            part_indices[:] = unpacked.reshape(part_indices.shape)
        return {**batch, "pack_indices": pack_indices, "unpack_indices": unpack_indices}

    def _shapes_of(self, length: int, parts: int) -> _Shapes:
        """The shapes for so many parts of batches of this length."""
        if length not in self._samples:
            return _Shapes(length)
        if (length, parts) not in self._shapes:
            samples = [_in_parts(lengths, parts) for lengths in self._samples[length]]
            self._shapes[length, parts] = _choose(samples, length, self._worth / parts)
        return self._shapes[length, parts]


def _lengths(batch: Batch) -> np.ndarray:
    """The number of tokens of each text, int64 [B, K]."""
    lengths: np.ndarray = batch["attention_mask"].sum(axis=-1)
    return lengths.reshape(len(lengths), -1)


def _in_parts(lengths: np.ndarray, parts: int) -> list[np.ndarray]:
    """The lengths of the texts of each part, int64 [B / G · K]."""
    return [lengths[part::parts].ravel() for part in range(parts)]


def _most(packings: Iterable[tuple[dict[int, int], int]]) -> int:
    """The number of packed rows that the largest part needs."""
    return max(needed for _, needed in packings)


def _starts(lengths: np.ndarray, length: int) -> tuple[dict[int, int], int]:
    """The start of each non-empty row in the packed rows, and the number of packed rows.

    Args:
        lengths: int64 [B], number of tokens of each row.
        length: number of tokens of a packed row.
    """
    (filled,) = lengths.nonzero()
    counts = lengths[filled]
    packed = best_fit_decreasing(counts, lambda size: length)
    starts = {}
    used: dict[int, int] = defaultdict(int)
    for row, count, number in zip(filled.tolist(), counts.tolist(), packed.tolist(), strict=True):
        starts[row] = number * length + used[number]
        used[number] += count
    return starts, max(1, len(used))


def _choose(batches: list[list[np.ndarray]], length: int, worth: float) -> _Shapes:
    """The shapes that cost the least work for batches like the samples.

    Args:
        batches: for each sample, the number of tokens of each text of each part.
        length: T.
        worth: number of tokens that another shape must save.
    """
    step = math.lcm(_LENGTH_MULTIPLE, length_multiple(length))
    stretched = {math.ceil(length * stretch / step) * step for stretch in _LENGTH_FACTORS}
    candidates = []
    for packed in sorted({length, *stretched}):
        needed = [_most(_starts(lengths, packed) for lengths in batch) for batch in batches]
        work = row_work(packed)
        counts, rows = _few_counts(needed, worth / work)
        candidates.append((work * rows, _Shapes(packed, counts)))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def row_work(length: int) -> float:
    """The work of a row of so many tokens, in tokens of short rows."""
    return length * (1 + length / _EQUAL_WORK_LENGTH)


def _few_counts(needed: list[int], worth: float) -> tuple[tuple[int, ...], float]:
    """Sizes to round each of `needed` up to, and the total cost: rounded sizes + `worth` per size.

    Minimises the cost by dynamic programming over the sorted numbers.
    """
    numbers, times = np.unique(needed, return_counts=True)
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for last, count in enumerate(numbers.tolist()):
        best.append(
            min(
                (
                    best[first][0] + worth + count * int(times[first : last + 1].sum()),
                    (*best[first][1], count),
                )
                for first in range(last + 1)
            )
        )
    rows, counts = best[-1]
    return counts, rows


def best_fit_decreasing(
    sizes: np.ndarray, capacity: Callable[[int], int], rows: int | None = None
) -> np.ndarray:
    """Assigns items to rows: the largest first, each to the row with the least sufficient space.

    Args:
        sizes: int64 [n], each at least 1.
        capacity: the capacity of a new row, made for an item of this size that fits in no other.
        rows: maximum number of rows; None for no limit.

    Returns:
        int64 [n], the row of each item; -1 if no row has space.
    """
    row_of = np.full(len(sizes), -1)
    count = 0
    by_space: dict[int, list[int]] = defaultdict(list)  # rows by their free space
    spaces = 0  # bit n is set if a row has free space n
    order = np.argsort(-sizes, kind="stable")
    for item, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        fitting = spaces >> size
        if fitting:
            left = (fitting & -fitting).bit_length() - 1
            space = size + left
            row = by_space[space].pop()
            if not by_space[space]:
                spaces ^= 1 << space
        elif count == rows:
            continue
        else:
            row, left = count, capacity(size) - size
            count += 1
        by_space[left].append(row)
        spaces |= 1 << left
        row_of[item] = row
    return row_of
