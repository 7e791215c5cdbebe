"""Rows that share a row: by hand, and nothing lost whatever the lengths."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.labelled.sharing import share_rows


def batch_of(lengths, width):
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int32)
    return {"attention_mask": mask, "labels": np.arange(len(lengths))}


def test_by_hand():
    shared = share_rows(batch_of([2, 5, 3, 0, 1], 6))
    # 5 and 1 fill a row; 3 and 2 another.
    assert shared["slots"].tolist() == [[6, 7, 8, 9, 10, 24], [12, 13, 14, 0, 1, -1]]
    assert shared["homes"].tolist() == [
        [9, 10, -1, -1, -1, -1],
        [0, 1, 2, 3, 4, -1],
        [6, 7, 8, -1, -1, -1],
        [-1] * 6,
        [5, -1, -1, -1, -1, -1],
    ]
    assert shared["labels"].tolist() == [0, 1, 2, 3, 4]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_every_token_has_one_slot_and_texts_stay_whole(lengths):
    batch = batch_of(lengths, 12)
    shared = share_rows(batch)
    slots, homes = shared["slots"].ravel(), shared["homes"].ravel()
    tokens = np.flatnonzero(batch["attention_mask"])
    assert sorted(slots[slots >= 0].tolist()) == tokens.tolist()
    assert (slots[homes[tokens]] == tokens).all()
    assert (homes[batch["attention_mask"].ravel() == 0] == -1).all()
    for row, length in zip(shared["homes"], lengths, strict=True):
        found = row[:length]
        assert (np.diff(found) == 1).all()
        assert len(set(found // 12)) <= 1
    assert len(shared["slots"]) <= max(len(lengths), 1)
    assert len(shared["slots"]) % max(1, len(lengths) // 8) == 0


def test_rows_of_several_sequences():
    mask = np.array([[[1, 1, 0], [1, 0, 0]], [[1, 1, 1], [1, 0, 0]]], np.int32)
    shared = share_rows({"attention_mask": mask})
    assert shared["homes"].shape == mask.shape
    assert len(shared["slots"]) == 3
