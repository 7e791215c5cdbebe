"""Windows over a text that is too long for one row: their ranges, and the units read in each.

The text consists of units that are never cut: single tokens of a passage, words of a sentence.
"""

import bisect
import itertools
from collections.abc import Sequence

Range = tuple[int, int]
"""The first index, and one past the last."""


def window_ranges(starts: Sequence[int], capacity: int, step: int) -> list[Range]:
    """The units of each window; together they cover all units (google's run_squad.py).

    Args:
        starts: int [n + 1], first token of each of n units, then the number of all tokens.
        capacity: maximum number of tokens of a window; no unit has more.
        step: tokens from the start of a window to the next start, rounded to a unit. No unit has
            more than max(`capacity - step`, 1) tokens.
    """
    count = len(starts) - 1
    ranges, first = [], 0
    while True:
        last = bisect.bisect_right(starts, starts[first] + capacity) - 1
        ranges.append((first, last))
        if last == count:
            return ranges
        first = bisect.bisect_left(starts, starts[first] + step)


def max_context_ranges(
    starts: Sequence[int], ranges: Sequence[Range], length_bonus: float = 0.0
) -> list[Range]:
    """The units of each window that have their maximum context in it; each unit is in one range.

    The context of a unit in a window is the smaller number of tokens left and right of it, plus
    `length_bonus` for each token of the window; of equal windows the first one wins
    (`_check_is_max_context` of run_squad.py of google-research/bert, with a bonus of 0.01).

    Args:
        starts: first token of each unit, as in `window_ranges`.
        ranges: the result of `window_ranges`.
        length_bonus: bonus per token of a window.
    """

    def context(unit: int, window: Range) -> float:
        left = starts[unit] - starts[window[0]]
        right = starts[window[1]] - starts[unit + 1]
        return min(left, right) + length_bonus * (starts[window[1]] - starts[window[0]])

    cuts = [0]
    for earlier, later in itertools.pairwise(ranges):
        # From left to right, the context falls in the earlier window and grows in the later one.
        shared = range(later[0], earlier[1])
        cuts.append(
            later[0]
            + bisect.bisect_left(
                shared, True, key=lambda unit: context(unit, later) > context(unit, earlier)
            )
        )
    return list(itertools.pairwise([*cuts, len(starts) - 1]))
