"""Which rows of tokens are computed together for predictions, and in which shapes.

Many rows are packed: short ones fill the space that long ones leave, so that hardly any padding is
computed. A few rows are padded: only for them, more shapes would have to be compiled. A server has
compiled all shapes of padded rows at its start, and cuts its rows into more batches with less work.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.padding import bucket_length, bucket_rows, bucket_size
from bert_jax.data.row_packing import best_fit_decreasing, row_work

# Packed rows have one of these lengths, or 2, 4, 8 … times one of them for longer texts.
_SHORTEST_ROWS = (64, 96, 128)

# A batch of packed rows of at most this length has `batch_size` of them; of longer rows, the
# same number of tokens.
_FULL_BATCH_LENGTH = 128

# Number of texts of a chunk that decide which of the lengths it has.
_SAMPLED_TEXTS = 256


@dataclasses.dataclass(frozen=True)
class BatchLayout:
    """The rows of a batch.

    Attributes:
        rows: for each row b of the batch that is not padding, the number of its row of tokens.
        count: B, rows of the batch.
        length: T, tokens of a row.
        indices: the arrays of `models.packed_rows.PackedRows.from_batch`; none if not packed.
    """

    rows: dict[int, int]
    count: int
    length: int
    indices: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class _PackedRow(NamedTuple):
    """U, and the rows of tokens in it."""

    length: int
    members: list[int]


def padded_batches(
    lengths: Sequence[int], *, batch_size: int, limit: int, row_multiple: int
) -> Iterator[BatchLayout]:
    """Batches of rows of similar length, the longest first, each padded to the next bucket.

    Args:
        lengths: tokens of each row.
        batch_size: maximum number of rows of a batch.
        limit: maximum number of tokens of a row.
        row_multiple: B is a multiple of it: the number of devices that share the rows.
    """
    order = _longest_first(lengths)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        count = bucket_rows(len(chosen), batch_size, row_multiple)
        length = bucket_length(lengths[chosen[0]], limit)
        yield BatchLayout(dict(enumerate(chosen)), count, length)


def row_counts(batch_size: int, row_multiple: int) -> list[int]:
    """All B of `padded_batches`."""
    rows = range(1, batch_size + 1)
    return sorted({bucket_rows(count, batch_size, row_multiple) for count in rows})


def least_work_batches(
    lengths: Sequence[int], *, batch_size: int, limit: int, row_multiple: int, batch_work: int
) -> Iterator[BatchLayout]:
    """Batches in the shapes of `padded_batches` that take the least work, the longest rows first.

    Of 32 texts, a half with some 10 tokens and a half with 90, `padded_batches` computes six times
    their tokens, this function 1.5 times with a `batch_work` of 256.

    Args:
        lengths: tokens of each row.
        batch_size: maximum number of rows of a batch.
        limit: maximum number of tokens of a row.
        row_multiple: see `padded_batches`.
        batch_work: the work of a batch beside that of its tokens, as that of so many tokens.
    """
    order, counts = _longest_first(lengths), row_counts(batch_size, row_multiple)
    buckets = [bucket_length(lengths[row], limit) for row in order]
    # The least work of the rows from each one on, and B of the first batch that takes it.
    least: list[tuple[float, int]] = [(0.0, 0)] * (len(order) + 1)
    for start in reversed(range(len(order))):
        work = row_work(buckets[start])
        least[start] = min(
            (batch_work + count * work + least[min(start + count, len(order))][0], count)
            for count in counts
        )
    start = 0
    while start < len(order):
        count = least[start][1]
        chosen = order[start : start + count]
        yield BatchLayout(dict(enumerate(chosen)), count, buckets[start])
        start += count


def packed_batches(
    lengths: Sequence[int], *, batch_size: int, limit: int, row_multiple: int
) -> Iterator[BatchLayout]:
    """Batches of at most `batch_size` packed rows, the longest first.

    Arguments as for `padded_batches`; T is U, and each device has packed rows of its own rows.
    """
    order = _longest_first(lengths)
    sample = order[:: max(1, len(order) // _SAMPLED_TEXTS)]
    shortest = min(
        sorted({min(length, limit) for length in _SHORTEST_ROWS}),
        key=lambda length: sum(
            row_work(row.length) for row in _packed_rows(lengths, sample, length, limit)
        ),
    )
    by_length: dict[int, list[list[int]]] = defaultdict(list)
    for row in _packed_rows(lengths, order, shortest, limit):
        by_length[row.length].append(row.members)
    for length, rows in sorted(by_length.items(), reverse=True):
        yield from _batches_of(rows, lengths, length, batch_size, row_multiple)


def _longest_first(lengths: Sequence[int]) -> list[int]:
    """The numbers of the rows; rows of equal length stay in the order of the input."""
    return sorted(range(len(lengths)), key=lambda row: -lengths[row])


def _packed_rows(
    lengths: Sequence[int], order: list[int], shortest: int, limit: int
) -> list[_PackedRow]:
    """Packs rows of tokens, the longest first: each into the row with the least sufficient space.

    Args:
        lengths: tokens of each row.
        order: the rows to pack, the longest first.
        shortest: U of rows that have only texts of at most U tokens; for others it is
            doubled until the text fits.
        limit: the maximum of U.
    """
    rows: list[_PackedRow] = []

    def new_row(length: int) -> int:
        doublings = (-(-length // shortest) - 1).bit_length()
        rows.append(_PackedRow(min(shortest << doublings, limit), []))
        return rows[-1].length

    sizes = np.array([lengths[row] for row in order])
    for row, packed in zip(order, best_fit_decreasing(sizes, new_row).tolist(), strict=True):
        rows[packed].members.append(row)
    return rows


def _batches_of(
    rows: list[list[int]], lengths: Sequence[int], length: int, batch_size: int, row_multiple: int
) -> Iterator[BatchLayout]:
    """The batches of all packed rows of U = `length` tokens."""
    most = max(1, batch_size * _FULL_BATCH_LENGTH // max(length, _FULL_BATCH_LENGTH))
    for chosen in _dealt(rows, most):
        count = _bucket_packed_rows(len(chosen), most, row_multiple)
        groups = [chosen[group::row_multiple] for group in range(row_multiple)]
        if len(chosen) == sum(map(len, chosen)):
            yield BatchLayout({b: row for b, (row,) in enumerate(chosen)}, count, length)
        else:
            yield _packed(groups, lengths, count // row_multiple, length)


def _dealt(rows: list[list[int]], most: int) -> list[list[list[int]]]:
    """Batches of `most` rows, the last of the rest; each has rows of all parts of the list.

    So they have about the same number of texts for each packed row, and most have the same shape.
    """
    sizes = [min(most, len(rows) - start) for start in range(0, len(rows), most)]
    batches: list[list[list[int]]] = [[] for _ in sizes]
    # Batch `number` takes its rows from equally spaced positions of the list.
    turns = [(index / size, number) for number, size in enumerate(sizes) for index in range(size)]
    for row, (_, number) in zip(rows, sorted(turns), strict=True):
        batches[number].append(row)
    return batches


def _bucket_packed_rows(rows: int, most: int, multiple: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, …, at most `most`, rounded up to a multiple."""
    return -(-min(bucket_size(rows, 1), most) // multiple) * multiple


def _packed(
    groups: list[list[list[int]]], lengths: Sequence[int], count: int, length: int
) -> BatchLayout:
    """The layout of a batch of packed rows.

    Args:
        groups: for each of G groups, the rows of tokens in each of its packed rows.
        lengths: tokens of each row.
        count: R.
        length: U, and T.
    """
    most = max(sum(map(len, group)) for group in groups)
    group_rows = bucket_length(most, count * length)  # B / G
    rows: dict[int, int] = {}
    starts: list[int] = []  # of each text in the packed rows of its group
    for number, group in enumerate(groups):
        before = len(starts)
        for packed_row, members in enumerate(group):
            start = packed_row * length
            for row in members:
                rows[number * group_rows + len(starts) - before] = row
                starts.append(start)
                start += lengths[row]
    batch_rows = np.fromiter(rows, np.int64)
    sizes = np.array([lengths[row] for row in rows.values()])
    tokens = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)
    packed = np.repeat(np.array(starts), sizes) + tokens  # index in the packed rows of the group
    unpacked = np.repeat(batch_rows * length, sizes) + tokens  # index in the batch
    group_of = np.repeat(batch_rows // group_rows, sizes)
    pack_indices = np.full((len(groups), count, length), -1, np.int32)
    pack_indices.reshape(-1)[group_of * count * length + packed] = (
        unpacked - group_of * group_rows * length
    )
    unpack_indices = np.full((len(groups) * group_rows, length), -1, np.int32)
    unpack_indices.reshape(-1)[unpacked] = packed
    indices = {"pack_indices": pack_indices, "unpack_indices": unpack_indices}
    return BatchLayout(rows, len(unpack_indices), length, indices)
