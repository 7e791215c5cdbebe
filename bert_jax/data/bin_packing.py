"""Things of many sizes, put into few rows."""

import numpy as np


def best_fit_decreasing(sizes: np.ndarray, rows: int, capacity: int) -> np.ndarray:
    """Puts things into rows: the largest first, each where it leaves the least room.

    Args:
        sizes: int64 [E], each from 1 to `capacity`.
        rows: how many there are.
        capacity: of a row.

    Returns:
        int64 [E], the row of each thing; -1 where none has room.
    """
    placed = np.full(len(sizes), -1)
    by_room: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows with so much room left
    by_room[capacity] = list(range(rows))[::-1]
    rooms = 1 << capacity  # bit n is set where a row has room n: finds the best in one look
    order = np.argsort(-sizes, kind="stable")
    for thing, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        fitting = rooms >> size
        if not fitting:
            continue
        left = (fitting & -fitting).bit_length() - 1
        room = size + left
        row = by_room[room].pop()
        if not by_room[room]:
            rooms ^= 1 << room
        by_room[left].append(row)
        rooms |= 1 << left
        placed[thing] = row
    return placed
