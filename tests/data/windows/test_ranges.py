"""Windows over units by hand, and the rule that says which window reads a unit."""

from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.windows import max_context_ranges, window_ranges


def test_windows_by_hand():
    # Units of one token: the windows of run_squad.py.
    assert window_ranges(range(8), 5, 2) == [(0, 5), (2, 7)]
    assert window_ranges(range(9), 5, 2) == [(0, 5), (2, 7), (4, 8)]
    assert window_ranges(range(6), 5, 2) == [(0, 5)]
    assert window_ranges(range(1), 5, 2) == [(0, 0)]
    assert window_ranges(range(10), 4, 2) == [(0, 4), (2, 6), (4, 8), (6, 9)]
    # Words of 1, 2, 1, 1 and 2 tokens: none is cut, and windows begin at words.
    assert window_ranges([0, 1, 3, 4, 5, 7], 4, 2) == [(0, 3), (2, 5)]


def test_the_shorter_last_window_has_less_context():
    # Token 4 is third from the left of the last window, (4, 8), and last of the first, (0, 5).
    ranges = [(0, 5), (2, 7), (4, 8)]
    assert max_context_ranges(range(9), ranges, 0.01) == [(0, 4), (4, 6), (6, 8)]
    assert max_context_ranges(range(4), [(0, 3)], 0.01) == [(0, 3)]


@given(st.data(), st.integers(1, 20), st.sampled_from([0.0, 0.01]))
def test_every_unit_is_read_where_it_has_most_context(data, capacity, bonus):
    step = data.draw(st.integers(1, capacity))
    longest = max(capacity - step, 1)
    sizes = data.draw(st.lists(st.integers(1, longest if bonus == 0 else 1), max_size=60))
    starts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    ranges = window_ranges(starts, capacity, step)
    assert {unit for first, last in ranges for unit in range(first, last)} == set(range(len(sizes)))
    assert all(starts[last] - starts[first] <= capacity for first, last in ranges)

    def context(unit, window):
        first, last = window
        left, right = starts[unit] - starts[first], starts[last] - starts[unit + 1]
        return min(left, right) + bonus * (starts[last] - starts[first])

    read = max_context_ranges(starts, ranges, bonus)
    assert [unit for first, last in read for unit in range(first, last)] == list(range(len(sizes)))
    for window, (first, last) in zip(ranges, read, strict=True):
        for unit in range(first, last):
            others = [other for other in ranges if other[0] <= unit < other[1]]
            # `max` gives the first of equals.
            assert window == max(others, key=lambda other: context(unit, other))
