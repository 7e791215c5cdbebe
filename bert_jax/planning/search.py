"""The largest micro-batch that fits, found by trying."""

import itertools
from collections.abc import Callable, Iterator


def largest_that_fits(
    fits: Callable[[int], bool], *, known: dict[int, bool], guess: int, tries: int
) -> int:
    """The largest of 1, 2, 3, 4, 6, 8, 12, 16, … rows that fit, as far as so many tries tell.

    Args:
        fits: whether so many rows fit; dear.
        known: what is known already.
        guess: where to begin.
        tries: the most calls of `fits`.

    Returns:
        Rows; 0 if none is known to fit.
    """
    known = dict(known)
    steps = list(itertools.takewhile(lambda rows: rows <= max(4 * guess, 4), _steps()))
    place = max(index for index, rows in enumerate(steps) if rows <= max(guess, 1))
    while 0 <= place < len(steps):
        rows = steps[place]
        if rows not in known:
            if tries == 0:
                break
            known[rows] = fits(rows)
            tries -= 1
        direction = 1 if known[rows] else -1
        place += direction
        # Between one that fits and one that does not, there is nothing to try.
        if 0 <= place < len(steps) and known.get(steps[place]) is (direction < 0):
            break
    return max((rows for rows, fit in known.items() if fit), default=0)


def _steps() -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, …: two to an octave."""
    yield 1
    for power in itertools.count(1):
        yield 1 << power
        yield 3 << power - 1
