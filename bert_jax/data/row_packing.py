"""Which short rows of a batch share a row, and what few shapes such shared rows have.

Every shape is compiled by itself, so there are to be few; every slot without a token is computed
for nothing, so they are to fit. What the first batches of a training need decides.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from bert_jax.data.bin_packing import best_fit_decreasing
from bert_jax.data.pipeline import Batch

# Shared rows may be longer than the rows of the batch by these factors, rounded up to a multiple of
# `_STEP` slots, or of `_KERNEL_STEP` where attention may have a kernel, see `fused_attention`.
_STRETCHES = (1.125, 1.25)
_STEP = 8
_KERNEL_LENGTH, _KERNEL_STEP = 512, 128

# At this length, what grows with its square takes as long as all else. (As many tokens take 1,
# 0.96, 1.11, 1.41, 1.48 in rows of 96, 128, 192, 256, 384: all-MiniLM-L6-v2, trained on a CPU.)
_LENGTH_OF_EQUAL_WORK = 512

# A further shape is worth its compilation where it saves this part of the work.
_WORTH = 1 / 48

# A batch that needs more rows than any that was looked at gets a multiple of this part of its own.
_PARTS = 8


@dataclasses.dataclass(frozen=True)
class _Shapes:
    """What shared rows of batches of one length look like.

    Attributes:
        length: slots of a row.
        counts: how many rows there may be, rising.
    """

    length: int
    counts: tuple[int, ...] = ()

    def rows(self, needed: int, batch_rows: int) -> int:
        """How many rows a batch gets that needs so many."""
        step = max(1, batch_rows // _PARTS)
        beyond = min(-(-needed // step) * step, batch_rows)
        return next((count for count in self.counts if count >= needed), beyond)


class RowSharing:
    """Puts short rows of a batch together."""

    def __init__(self, samples: Iterable[Batch] = ()) -> None:
        """Chooses the shapes.

        Args:
            samples: batches like those that will come, as for `share`; without any, shared rows
                are as long as those of the batch, and their number a multiple of an eighth of its.
        """
        by_length: dict[int, list[np.ndarray]] = defaultdict(list)
        for batch in samples:
            by_length[batch["attention_mask"].shape[-1]].append(_lengths(batch))
        tokens = sum(
            int(lengths.sum()) for of_length in by_length.values() for lengths in of_length
        )
        self._shapes = {
            length: _choose(of_length, length, tokens * _WORTH)
            for length, of_length in by_length.items()
        }

    def share(self, batch: Batch) -> Batch:
        """A batch with `slots` and `unpack_indices`, see `models.shared_rows.SharedRows`.

        Args:
            batch: `attention_mask` int32 [..., T], 1 for the first tokens of a row and 0 for the
                others, tells the lengths; all axes but the last count rows.

        Returns:
            `slots` int32 [R, S] and `unpack_indices` int32 [..., T] besides what was there.
        """
        shape = batch["attention_mask"].shape
        lengths, length = _lengths(batch), shape[-1]
        shapes = self._shapes.get(length, _Shapes(length))
        places, needed = _placed(lengths, shapes.length)
        if shapes.rows(needed, len(lengths)) * shapes.length**2 > len(lengths) * length**2:
            # Hardly a row is short, and the attention of longer ones would take more memory than
            # the batch by itself.
            shapes = _Shapes(length)
            places, needed = _placed(lengths, length)
        slots = np.full((shapes.rows(needed, len(lengths)), shapes.length), -1, np.int32)
        unpack_indices = np.full((len(lengths), length), -1, np.int32)
        for row, place in places.items():
            tokens = np.arange(lengths[row], dtype=np.int32)
            slots.reshape(-1)[place + tokens] = row * length + tokens
            unpack_indices[row, tokens] = place + tokens
        return {**batch, "slots": slots, "unpack_indices": unpack_indices.reshape(shape)}


def _lengths(batch: Batch) -> np.ndarray:
    """The tokens of each row."""
    mask = batch["attention_mask"]
    return mask.reshape(-1, mask.shape[-1]).sum(axis=1)


def _placed(lengths: np.ndarray, length: int) -> tuple[dict[int, int], int]:
    """The slot of the first token of each row that has tokens, and how many shared rows there are.

    Args:
        lengths: int64 [B], the tokens of each row.
        length: slots of a shared row.
    """
    (filled,) = lengths.nonzero()
    counts = lengths[filled]
    shared = best_fit_decreasing(counts, len(counts), length)
    places = {}
    used: dict[int, int] = defaultdict(int)
    for row, count, number in zip(filled.tolist(), counts.tolist(), shared.tolist(), strict=True):
        places[row] = number * length + used[number]
        used[number] += count
    return places, max(1, len(used))


def _choose(batches: list[np.ndarray], length: int, worth: float) -> _Shapes:
    """The shapes that take the least work for batches of rows of such lengths.

    Args:
        batches: the tokens of each row of each batch, all of which have T = `length`.
        length: T.
        worth: the slots that a further shape must save.
    """
    step = _KERNEL_STEP if length >= _KERNEL_LENGTH else _STEP
    stretched = {math.ceil(length * stretch / step) * step for stretch in _STRETCHES}
    candidates = []
    for slots in sorted({length, *stretched}):
        needed = [_placed(lengths, slots)[1] for lengths in batches]
        work = slots * (1 + slots / _LENGTH_OF_EQUAL_WORK)
        counts, rows = _few_counts(needed, worth / work)
        candidates.append((work * rows, _Shapes(slots, counts)))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _few_counts(needed: list[int], worth: float) -> tuple[tuple[int, ...], float]:
    """Numbers that each of `needed` is rounded up to, and their sum for all, with `worth` for each.

    Of all choices the one with the least sum: the best for the smallest ones is found first, then
    for one more (dynamic programming).
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
