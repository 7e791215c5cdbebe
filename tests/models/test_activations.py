"""The gradient and the rounding of GELU; the values of all activations are in test_bert."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.activations import gelu

X = np.linspace(-8, 8, 161)


def exact(x):
    return np.array([0.5 * one * (1 + math.erf(one / math.sqrt(2))) for one in x])


def test_gelu_is_that_of_the_erf():
    np.testing.assert_allclose(gelu(jnp.asarray(X, jnp.float32)), exact(X), rtol=1e-5, atol=1e-6)
    assert gelu(jnp.array([0.0, 1.0])).tolist() == pytest.approx([0, 0.8413447])


def test_the_gradient_of_gelu():
    slopes = jax.vmap(jax.grad(gelu))(jnp.asarray(X, jnp.float32))
    h = 1e-5
    np.testing.assert_allclose(slopes, (exact(X + h) - exact(X - h)) / (2 * h), atol=1e-6)


def test_gelu_of_bfloat16_is_rounded_once():
    x = jnp.asarray(X, jnp.bfloat16)
    assert gelu(x).dtype == jnp.bfloat16
    expected = exact(np.asarray(x, np.float64))
    np.testing.assert_allclose(np.asarray(gelu(x), np.float64), expected, rtol=2.0**-8, atol=1e-6)
    assert jax.grad(lambda x: gelu(x).sum())(x).dtype == jnp.bfloat16
