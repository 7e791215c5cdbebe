"""Dropout: its rate, the independence of its bits, its gradient.

training/test_devices.py shows that the mask is the same on any number of devices.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.dropout import Dropout, ElementIndices, dropped, random_bits

KEY = np.uint32([123, 456])
COUNT = 512 * 2048


def counted(shape):
    """The indices of all elements, in order."""
    *outer, width = shape
    return ElementIndices.from_rows(jnp.arange(np.prod(outer, dtype=int)).reshape(outer), width)


@functools.partial(jax.jit, static_argnums=0)
def drop(rate, values):
    return dropped(rate, values, KEY, counted(values.shape))


@functools.partial(jax.jit, static_argnums=0)
def random_bits_of(shape, key):
    return random_bits(key, counted(shape))


@functools.cache
def bits_of(key=(123, 456), shape=(8, 64, 2048)):
    return np.asarray(random_bits_of(shape, np.uint32(key)))


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
def test_the_rate_is_exact_and_the_mean_stays(rate):
    values = np.asarray(drop(rate, np.ones((512, 2048), np.float32)))
    deviation = (rate * (1 - rate) / COUNT) ** 0.5
    assert abs((values == 0).mean() - rate) < 4 * deviation
    np.testing.assert_allclose(values[values > 0], 1 / (1 - rate), rtol=1e-6)


def test_every_bit_is_a_fair_coin_and_independent_of_the_other_bits():
    flat = bits_of().reshape(-1)[: 2**17]
    coins = np.stack([(flat >> bit) & 1 for bit in range(32)]).astype(np.float32)
    limit = 5 * 0.5 / len(flat) ** 0.5
    assert abs(coins.mean(axis=1) - 0.5).max() < limit
    covariance = np.cov(coins)
    assert abs(covariance - np.diag(np.diag(covariance))).max() < limit / 2


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_neighbours_are_independent(axis):
    uniform = bits_of() / 2**32 - 0.5
    values = uniform.take(range(1, uniform.shape[axis]), axis)
    neighbours = uniform.take(range(uniform.shape[axis] - 1), axis)
    assert abs((values * neighbours).mean() * 12) < 5 / values.size**0.5
    # Both are dropped in 1 of 100 pairs at a rate of 1 in 10.
    both = ((values < -0.4) & (neighbours < -0.4)).mean()
    assert both == pytest.approx(0.01, abs=5 * (0.01 / values.size) ** 0.5)


def test_neighbouring_keys_are_independent():
    keys = [(1, 2), (2, 2), (1, 3), (2, 1), (0, 0), (2**31, 2)]
    masks = [bits_of(key) < 2**32 // 10 for key in keys]
    for mask, second in itertools.combinations(masks, 2):
        assert (mask & second).mean() == pytest.approx(0.01, abs=5 * (0.01 / COUNT) ** 0.5)


def test_every_row_and_column_has_the_rate():
    mask = bits_of(shape=(1024, 1024)) < 2**32 // 10
    deviation = (0.1 * 0.9 / 1024) ** 0.5
    for axis in (0, 1):
        rates = mask.mean(axis=axis)
        assert abs(rates - 0.1).max() < 5 * deviation
        assert rates.std() == pytest.approx(deviation, rel=0.1)


def test_the_gradient_is_dropped_like_the_values():
    values = np.random.default_rng(0).normal(size=(4, 6, 8)).astype(np.float32)
    out = drop(0.5, values)
    gradient = jax.jit(jax.grad(lambda x: drop(0.5, x).sum()))(values)
    np.testing.assert_array_equal(gradient, np.where(np.asarray(out) == 0, 0, 2))


def test_bfloat16_has_the_same_mask():
    values = np.ones((16, 32), np.float32)
    narrow = np.asarray(drop(0.1, values.astype(jnp.bfloat16)))
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_array_equal(narrow == 0, np.asarray(drop(0.1, values)) == 0)


def test_the_mask_depends_on_the_index():
    values = np.ones((6, 32), np.float32)
    whole = np.asarray(drop(0.3, values))
    order = np.array([4, 0, 5, 1])

    @jax.jit
    def of_rows(order, values):
        return dropped(0.3, values, KEY, ElementIndices.from_rows(order, 32))

    moved = of_rows(order, values[:4])
    np.testing.assert_array_equal(moved, whole[order])


def test_the_module_draws_a_new_mask_per_key_and_none_without_training():
    module, values = Dropout(0.5), np.ones((64, 64), np.float32)
    apply = jax.jit(
        lambda seed: module.apply(
            {}, values, deterministic=False, rngs={"dropout": jax.random.key(seed)}
        )
    )
    first, again, other = (np.asarray(apply(seed)) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    rngs = {"dropout": jax.random.key(0)}
    unchanged = module.apply({}, values, deterministic=True, rngs=rngs)
    np.testing.assert_array_equal(unchanged, values)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, values, deterministic=False), values)
