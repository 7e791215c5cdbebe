"""Bin packing: items of many sizes in few rows."""

import numpy as np


def best_fit_decreasing(sizes: np.ndarray, rows: int, capacity: int) -> np.ndarray:
    """Assigns items to rows: the largest first, each to the row with the least sufficient room.

    Args:
        sizes: int64 [E], each from 1 to `capacity`.
        rows: number of rows.
        capacity: of each row.

    Returns:
        int64 [E], the row of each item; -1 if none has room.
    """
    placed = np.full(len(sizes), -1)
    by_room: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows by their free room
    by_room[capacity] = list(range(rows))[::-1]
    rooms = 1 << capacity  # bit n is set if a row has room n
    order = np.argsort(-sizes, kind="stable")
    for item, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
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
        placed[item] = row
    return placed
