"""Short rows in packed rows: by hand, and no token lost whatever the lengths."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.row_packing import RowPacker, best_fit_decreasing


def batch_of(lengths, width):
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int32)
    return {"attention_mask": mask, "labels": np.arange(len(lengths))}


def test_by_hand():
    packed = RowPacker().pack(batch_of([2, 5, 3, 0, 1], 6))
    # 5 has a row, 3, 2 and 1 share another, in the order of the batch.
    assert packed["pack_indices"].tolist() == [[[6, 7, 8, 9, 10, -1], [0, 1, 12, 13, 14, 24]]]
    assert packed["unpack_indices"].tolist() == [
        [6, 7, -1, -1, -1, -1],
        [0, 1, 2, 3, 4, -1],
        [8, 9, 10, -1, -1, -1],
        [-1] * 6,
        [11, -1, -1, -1, -1, -1],
    ]
    assert packed["labels"].tolist() == [0, 1, 2, 3, 4]


def test_parts_of_a_batch_by_hand():
    # Part 0 has the rows 0, 2 and 4, part 1 the rows 1, 3 and 5; both get the rows of the longer.
    packed = RowPacker().pack(batch_of([2, 4, 3, 4, 1, 0], 6), parts=2)
    assert packed["pack_indices"].tolist() == [
        [[0, 1, 6, 7, 8, 12], [-1] * 6],
        [[0, 1, 2, 3, -1, -1], [6, 7, 8, 9, -1, -1]],
    ]
    assert packed["unpack_indices"].tolist() == [
        [0, 1, -1, -1, -1, -1],
        [0, 1, 2, 3, -1, -1],
        [2, 3, 4, -1, -1, -1],
        [6, 7, 8, 9, -1, -1],
        [5, -1, -1, -1, -1, -1],
        [-1] * 6,
    ]


def test_longer_rows_where_more_texts_fit():
    # Two texts of 36 tokens fit 72 tokens (9/8 of 64), not 64: four rows instead of eight.
    row_packer = RowPacker([batch_of([36] * 8, 64)] * 3)
    assert row_packer.pack(batch_of([36] * 8, 64))["pack_indices"].shape == (1, 4, 72)
    # Here nothing is won by longer rows.
    row_packer = RowPacker([batch_of([32] * 8, 64)] * 3)
    assert row_packer.pack(batch_of([32] * 8, 64))["pack_indices"].shape == (1, 4, 64)
    # Long rows have lengths that kernels take; without a sample of the length, rows stay as long.
    row_packer = RowPacker([batch_of([300] * 8, 512)])
    assert row_packer.pack(batch_of([300] * 8, 512))["pack_indices"].shape == (1, 4, 640)
    assert row_packer.pack(batch_of([20, 20, 20], 32))["pack_indices"].shape == (1, 3, 32)


def test_the_numbers_of_rows_are_those_that_batches_need():
    # Of 16 rows each; the number that half the batches need is worth a shape.
    few, many = batch_of([64] * 3 + [0] * 13, 64), batch_of([64] * 11 + [0] * 5, 64)
    row_packer = RowPacker([few, many] * 10)
    assert [row_packer.pack(batch)["pack_indices"].shape[1] for batch in (few, many)] == [3, 11]
    # Between them the next; beyond them multiples of an eighth of the batch.
    more = [batch_of([64] * count + [0] * (16 - count), 64) for count in (1, 4, 12, 13, 16)]
    assert [row_packer.pack(batch)["pack_indices"].shape[1] for batch in more] == [
        *(3, 11, 12, 14, 16),
    ]
    # One batch of a hundred is not.
    row_packer = RowPacker([few, *[many] * 99])
    assert row_packer.pack(few)["pack_indices"].shape[1] == 11
    # A shape costs as much as some ten batches: few batches have one.
    row_packer = RowPacker([few, many] * 5)
    assert row_packer.pack(few)["pack_indices"].shape[1] == 11


@given(st.integers(3, 40), st.data())
def test_every_token_is_packed_once_and_texts_stay_whole(width, data):
    some_lengths = st.lists(st.integers(0, width), min_size=1, max_size=40)
    samples = data.draw(st.lists(some_lengths, max_size=3))
    lengths = data.draw(some_lengths)
    batch = batch_of(lengths, width)
    packed = RowPacker([batch_of(sample, width) for sample in samples]).pack(batch)
    pack_indices, unpack_indices = (
        packed[name].ravel() for name in ("pack_indices", "unpack_indices")
    )
    tokens = np.flatnonzero(batch["attention_mask"])
    assert sorted(pack_indices[pack_indices >= 0].tolist()) == tokens.tolist()
    assert (pack_indices[unpack_indices[tokens]] == tokens).all()
    assert (unpack_indices[batch["attention_mask"].ravel() == 0] == -1).all()
    _, rows, packed_length = packed["pack_indices"].shape
    for row, length in zip(packed["unpack_indices"], lengths, strict=True):
        indices = row[:length]
        assert (np.diff(indices) == 1).all()
        assert len(set(indices // packed_length)) <= 1
    # Nothing takes more memory than the batch itself.
    assert rows * packed_length**2 <= len(lengths) * width**2
    if not samples:
        step = max(1, len(lengths) // 8)
        assert rows == len(lengths) or (rows < len(lengths) and rows % step == 0)


def test_rows_of_several_sequences():
    mask = np.array([[[1, 1, 0], [1, 0, 0]], [[1, 1, 1], [1, 0, 0]]], np.int32)
    packed = RowPacker().pack({"attention_mask": mask})
    assert packed["unpack_indices"].shape == mask.shape
    assert packed["pack_indices"].shape[1] == 3


def test_best_fit_decreasing_by_eye():
    sizes = np.array([3, 7, 5, 6, 4, 2, 9])
    # 9 opens row 0, 7 row 1, 6 row 2, which leaves 4: no room for 5. 4 goes to 6, and 3 to 7. Only
    # row 0 has room left, for 1: none for 2.
    assert best_fit_decreasing(sizes, lambda size: 10, 3).tolist() == [1, 1, -1, 2, 2, -1, 0]
    # A fourth row: 5 opens it, and 2 fits beside it.
    assert best_fit_decreasing(sizes, lambda size: 10).tolist() == [1, 1, 3, 2, 2, 3, 0]
    # Rows of 4, 8 and 16: 9 and 7 fill one of 16, 6 and 2 one of 8, 5 and 3 another, 4 one of 4.
    rows = best_fit_decreasing(sizes, lambda size: 4 << (-(-size // 4) - 1).bit_length())
    assert rows.tolist() == [2, 0, 2, 1, 3, 1, 0]


@given(st.lists(st.integers(1, 12), max_size=40), st.integers(1, 20))
def test_best_fit_decreasing_equals_a_plain_loop(sizes, rows):
    """Which of several equally full rows is taken is undefined, so the spaces are compared."""
    left, unplaced = [12] * rows, []
    for size in sorted(sizes, reverse=True):
        fitting = [space for space in left if space >= size]
        if fitting:
            left[left.index(min(fitting))] -= size
        else:
            unplaced.append(size)
    sizes = np.array(sizes, np.int64)
    placed = best_fit_decreasing(sizes, lambda size: 12, rows)
    used = np.bincount(placed[placed >= 0], sizes[placed >= 0], rows)
    assert sorted(12 - used) == sorted(left)
    assert sorted(sizes[placed < 0], reverse=True) == unplaced
