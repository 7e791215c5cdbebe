"""Rows of prompts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.generation.rows import best_of_rows, rows_of_prompts


@pytest.mark.slow
def test_rows_of_prompts():
    array = jnp.array([[10, 11], [20, 21], [30, 31], [40, 41]])
    chosen = rows_of_prompts(array, jnp.array([1, 1, 3, 2]), 2)
    assert chosen.tolist() == [[20, 21], [20, 21], [40, 41], [30, 31]]
    more = rows_of_prompts(array[:2], jnp.array([0, 0, 0, 1, 1, 1]), 2)
    assert more[:, 0].tolist() == [10, 10, 10, 20, 20, 20]


def test_best_of_rows():
    scores, indices = best_of_rows(np.array([[[1.0, 3.0, 2.0]], [[6.0, 4.0, 5.0]]]), 2)
    assert scores.tolist() == [[[3, 2]], [[6, 5]]]
    assert indices.tolist() == [[[1, 2]], [[0, 2]]]


@pytest.mark.parametrize(("size", "count"), [(700, 1), (2048, 3), (5000, 9), (8000, 8)])
def test_best_of_many_scores(size, count):
    """Blocks of scores are searched; the order of equal scores is that of `top_k`."""
    generator = np.random.default_rng(size)
    scores = np.round(generator.standard_normal((4, size)).astype(np.float32) * 2)
    scores[generator.random((4, size)) < 0.3] = -np.inf
    scores[0, : size - 5] = -np.inf
    for found, expected in zip(
        best_of_rows(jnp.array(scores), count), jax.lax.top_k(scores, count), strict=True
    ):
        assert np.array_equal(found, expected)
