"""The largest micro-batch, found by few tries."""

import pytest

from bert_jax.planning.search import largest_that_fits


@pytest.mark.parametrize(
    ("limit", "known", "guess", "tried", "found"),
    [
        (40, {8: True}, 32, [32, 48], 32),
        (40, {8: True}, 100, [96, 64, 48, 32], 32),
        (40, {8: True}, 8, [12, 16, 24, 32], 32),  # four tries do not tell more
        (5, {64: False}, 6, [6, 4], 4),
        (0, {64: False}, 2, [2, 1], 0),
        (40, {48: False, 32: True}, 32, [], 32),
        (40, {20: True}, 20, [16, 24, 32, 48], 32),  # 20 is no step of the search
        (1, {1: True}, 0, [2], 1),
    ],
)
def test_tries(limit, known, guess, tried, found):
    tries = []

    def fits(rows: int) -> bool:
        tries.append(rows)
        return rows <= limit

    assert largest_that_fits(fits, known=known, guess=guess, tries=4) == found
    assert tries == tried
