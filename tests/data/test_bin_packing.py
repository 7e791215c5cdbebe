"""Which thing goes to which row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.bin_packing import best_fit_decreasing


def test_best_fit_decreasing_by_eye():
    sizes = np.array([3, 7, 5, 6, 4, 2, 9])
    # 9 opens row 0, 7 row 1, 6 row 2, which leaves 4: no room for 5. 4 goes to 6, and 3 to 7. Only
    # row 0 has room left, for 1: none for 2.
    assert best_fit_decreasing(sizes, 3, 10).tolist() == [1, 1, -1, 2, 2, -1, 0]
    # A fourth row: 5 opens it, and 2 fits beside it.
    assert best_fit_decreasing(sizes, 4, 10).tolist() == [1, 1, 3, 2, 2, 3, 0]


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 30))
def test_rows_never_overflow_and_what_is_left_out_fits_nowhere(sizes, rows):
    sizes = np.array(sizes, np.int64)
    placed = best_fit_decreasing(sizes, rows, 50)
    assert placed.min(initial=0) >= -1
    assert placed.max(initial=0) < rows
    used = np.bincount(placed[placed >= 0], sizes[placed >= 0], rows)
    assert used.max() <= 50
    assert (used.min() + sizes[placed < 0] > 50).all()
