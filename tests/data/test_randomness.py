"""Random numbers against an independent scalar implementation; shuffles as permutations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data import randomness

UINT64 = (1 << 64) - 1
ANY_UINT64 = st.integers(0, UINT64)


def scalar_mix(value: int) -> int:
    """SplitMix64's output function with Python's integers."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & UINT64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & UINT64
    return value ^ (value >> 31)


def scalar_bits(key: int, position: int) -> int:
    """Output number `position` of a SplitMix64 generator with the first state `key`."""
    return scalar_mix((key + (position + 1) * 0x9E3779B97F4A7C15) & UINT64)


def keys_of(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_the_published_outputs_of_splitmix64():
    # The first five outputs for the seed 1234567 as its reference implementation prints them.
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert randomness.random_bits(keys_of(1234567), np.arange(5)).tolist() == published
    assert [scalar_bits(1234567, position) for position in range(5)] == published


@given(keys=st.lists(ANY_UINT64, min_size=1, max_size=3), position=st.integers(0, 1 << 40))
def test_random_bits_are_the_scalar_bits_and_broadcast(keys, position):
    positions = np.array([position, position + 7])
    bits = randomness.random_bits(keys_of(*keys)[:, None], positions)
    assert bits.dtype == np.uint64
    assert bits.tolist() == [[scalar_bits(key, n) for n in positions.tolist()] for key in keys]


def test_a_derived_key_chains_the_parts_and_knows_their_order():
    expected = scalar_bits(scalar_bits(0, 3), 5)
    assert randomness.derive_key(3, 5).tolist() == [expected]
    keys = [randomness.derive_key(*parts).item() for parts in ((3, 5), (5, 3), (3,), (3, 5, 0))]
    assert len(set(keys)) == len(keys)


def test_numbers_of_bits_by_hand():
    bits = keys_of(0, 1 << 62, 1 << 63, 3 << 62, UINT64)
    assert randomness.uniform(bits).tolist() == [0.0, 0.25, 0.5, 0.75, 1 - 2.0**-53]
    assert randomness.integers_below(bits, 4).tolist() == [0, 1, 2, 3, 3]
    assert randomness.integers_below(bits, 1).tolist() == [0, 0, 0, 0, 0]
    assert randomness.integers_below(bits, np.array([1, 2, 3, 4, 10])).tolist() == [0, 0, 1, 3, 9]
    numbers = randomness.integers_below(randomness.random_bits(keys_of(1), np.arange(100_000)), 10)
    shares = np.bincount(numbers, minlength=10) / len(numbers)
    np.testing.assert_allclose(shares, 0.1, atol=0.004)  # four standard deviations


@given(bits=ANY_UINT64, limit=st.integers(1, 1 << 48))
def test_integers_stay_below_their_limit(bits, limit):
    assert 0 <= randomness.integers_below(keys_of(bits), limit).item() < limit


@given(size=st.integers(1, 400) | st.sampled_from([1009, 4095, 4096, 4097]), key=ANY_UINT64)
def test_permute_is_a_bijection(size, key):
    permuted = randomness.permute(np.arange(size), size, keys_of(key))
    assert permuted.dtype == np.int64
    assert sorted(permuted.tolist()) == list(range(size))


def test_a_huge_permutation_is_evaluated_at_a_few_points():
    size = 10**15 + 37
    indices = np.array([0, 1, 2, size // 2, size - 2, size - 1])
    keys = keys_of(4)
    permuted = randomness.permute(indices, size, keys)
    assert len(set(permuted.tolist())) == len(indices)
    assert permuted.min() >= 0
    assert permuted.max() < size
    assert (keys.item(), indices[1]) == (4, 1)  # arguments are not changed


@given(
    size=st.integers(1, 200),
    picks=st.lists(st.tuples(st.integers(0, 10**6), ANY_UINT64), min_size=1, max_size=20),
)
def test_each_point_depends_on_its_index_and_key_only(size, picks):
    indices = np.array([pick % size for pick, _ in picks])
    keys = keys_of(*(key for _, key in picks))
    together = randomness.permute(indices, size, keys)
    for index, key, permuted in zip(indices, keys, together, strict=True):
        assert randomness.permute(np.arange(size), size, key[None])[index] == permuted


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_every_order_of_a_few_is_equally_likely(size):
    keys = randomness.random_bits(keys_of(3), np.arange(40_000))
    columns = [randomness.permute(np.full(len(keys), index), size, keys) for index in range(size)]
    _, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    orders = math.factorial(size)
    assert len(counts) == orders
    assert chi_square_deviation(counts) < 4


@pytest.mark.parametrize("size", [10, 20, 31, 63, 64, 65, 100])
def test_two_indices_go_to_all_pairs_of_positions_equally_often(size):
    keys = randomness.random_bits(keys_of(9), np.arange(200_000))
    first = randomness.permute(np.full(len(keys), 0), size, keys)
    last = randomness.permute(np.full(len(keys), size - 1), size, keys)
    counts = np.bincount(first * size + last, minlength=size**2)
    of_pairs = counts[~np.eye(size, dtype=bool).reshape(-1)]
    assert of_pairs.sum() == len(keys)
    assert chi_square_deviation(of_pairs) < 4


def chi_square_deviation(counts):
    """How many standard deviations χ² of equal frequencies is above its mean."""
    expected = counts.mean()
    freedom = len(counts) - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)
