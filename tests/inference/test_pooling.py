"""Pooling of vectors that a person can add up."""

import jax.numpy as jnp
import numpy as np

from bert_jax.models import pooling
from bert_jax.models.layers import l2_normalize

HIDDEN = jnp.array(
    [
        [[1.0, -4.0], [3.0, -2.0], [5.0, -9.0], [99.0, 99.0]],
        [[2.0, 0.0], [99.0, 99.0], [99.0, 99.0], [99.0, 99.0]],
        [[7.0, 7.0], [7.0, 7.0], [7.0, 7.0], [7.0, 7.0]],
    ]
)
MASK = jnp.array(
    [
        [True, True, True, False],
        [True, False, False, False],
        [False, False, False, False],
    ]
)


def test_cls():
    np.testing.assert_array_equal(pooling.cls(HIDDEN), [[1.0, -4.0], [2.0, 0.0], [7.0, 7.0]])


def test_mean_leaves_padding_out():
    expected = [[3.0, -5.0], [2.0, 0.0], [0.0, 0.0]]
    np.testing.assert_array_equal(pooling.masked_mean(HIDDEN, MASK), expected)


def test_max_leaves_padding_out():
    found = np.asarray(pooling.masked_max(HIDDEN, MASK))
    np.testing.assert_array_equal(found[:2], [[5.0, -2.0], [2.0, 0.0]])
    assert np.isfinite(found[2]).all()


def test_unit_length():
    found = l2_normalize(jnp.array([[3.0, 4.0], [0.0, -2.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.0, -1.0], [0.0, 0.0]], rtol=1e-6)
