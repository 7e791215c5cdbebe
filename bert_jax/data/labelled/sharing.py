"""Which short rows of a batch share a row."""

import numpy as np

from bert_jax.data.pipeline import Batch

# The number of shared rows is a multiple of this part of the batch, so that few shapes arise.
_PARTS = 8


def share_rows(batch: Batch) -> Batch:
    """A batch with `slots` and `homes`, see `models.shared_rows.SharedRows`.

    The longest row first, each goes to the first row with room for it.

    Args:
        batch: `attention_mask` int32 [..., T], 1 for the first tokens of a row and 0 for the
            others, tells the lengths; all axes but the last count rows.

    Returns:
        `slots` int32 [R, T] and `homes` int32 [..., T] besides what was there.
    """
    mask = batch["attention_mask"]
    length = mask.shape[-1]
    lengths = mask.reshape(-1, length).sum(axis=1)
    step = max(1, len(lengths) // _PARTS)
    room: list[int] = []
    slots = np.full((len(lengths) + step, length), -1, np.int32)
    homes = np.full((len(lengths), length), -1, np.int32)
    for row in np.argsort(-lengths, kind="stable"):
        count = int(lengths[row])
        if not count:
            break
        shared = next((number for number, free in enumerate(room) if free >= count), len(room))
        if shared == len(room):
            room.append(length)
        start = length - room[shared]
        slots[shared, start : start + count] = row * length + np.arange(count)
        homes[row, :count] = shared * length + start + np.arange(count)
        room[shared] -= count
    rows = max(1, -(-len(room) // step)) * step
    return {**batch, "slots": slots[:rows], "homes": homes.reshape(mask.shape)}
