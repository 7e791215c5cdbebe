"""Dense layers, LayerNorm and GELU, where Flax's and JAX's defaults are not BERT's."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.activations import ACTIVATIONS, gelu
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.layers import dense, gather_positions, layer_norm


def normalised(x, dtype="float32", **fields):
    norm = layer_norm(EncoderConfig(hidden_size=x.shape[-1], num_attention_heads=1, **fields),
                      Execution(dtype=dtype), "norm")  # fmt: skip
    return jax.jit(norm.init_with_output)(jax.random.key(0), x)[0]


def test_layer_norm_has_the_small_epsilon():
    # Variance 1e-8: with Flax's 1e-6 the result would be 0.1, with 1e-12 it is 1.
    x = np.float32([[-1e-4, 1e-4]])
    np.testing.assert_allclose(normalised(x), [[-1.0, 1.0]], rtol=1e-3)
    np.testing.assert_allclose(normalised(x, layer_norm_eps=1e-6), [[-0.0995, 0.0995]], rtol=1e-2)


def test_layer_norm_subtracts_the_mean_before_it_squares():
    # E[x²] - E[x]² of numbers near 10,000 loses all digits in float32.
    x = np.float32([[10_000.0, 10_002.0]])
    np.testing.assert_allclose(normalised(x), [[-1.0, 1.0]], rtol=1e-3)


def test_layer_norm_of_bfloat16_computes_in_float32():
    x = np.random.default_rng(0).normal(3, 1, (4, 256))
    exact = np.asarray(normalised(x.astype(jnp.bfloat16).astype(np.float32)))
    rounded = normalised(x.astype(jnp.bfloat16), dtype="bfloat16")
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_array_equal(rounded, exact.astype(jnp.bfloat16))


def test_parameters_are_float32_under_bfloat16():
    module = dense(EncoderConfig(), Execution(dtype="bfloat16"), 3, "dense")
    x = np.ones((2, 5), np.float32)
    output, variables = jax.eval_shape(module.init_with_output, jax.random.key(0), x)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    assert output.dtype == jnp.bfloat16


def test_gathered_positions_by_hand():
    hidden = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    positions = np.array([[2, 0], [1, 1]])
    assert gather_positions(hidden, positions).tolist() == [
        [[4.0, 5.0], [0.0, 1.0]],
        [[8.0, 9.0], [8.0, 9.0]],
    ]


X = np.linspace(-8, 8, 161)


def exact(x):
    return np.array([0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x])


def test_gelu_is_the_form_with_erf():
    values = np.asarray(jax.jit(gelu)(np.float32(X)))
    np.testing.assert_allclose(values, exact(X), rtol=1e-5, atol=1e-6)
    assert values[[80, 90]].tolist() == pytest.approx([0, 0.8413447])  # of 0 and 1


def test_the_gradient_of_gelu():
    slopes = jax.jit(jax.vmap(jax.grad(gelu)))(np.float32(X))
    h = 1e-5
    np.testing.assert_allclose(slopes, (exact(X + h) - exact(X - h)) / (2 * h), atol=1e-6)


def test_gelu_of_bfloat16_is_rounded_once():
    x = X.astype(jnp.bfloat16)
    values = jax.jit(gelu)(x)
    assert values.dtype == jnp.bfloat16
    expected = exact(np.asarray(x, np.float64))
    np.testing.assert_allclose(np.asarray(values, np.float64), expected, rtol=2.0**-8, atol=1e-6)
    assert jax.eval_shape(jax.grad(lambda x: gelu(x).sum()), x).dtype == jnp.bfloat16


# Of -3.5, -0.5, 0.75 and 12, recorded from transformers 5.24 in float64.
OF_TRANSFORMERS = {
    "gelu": (-0.000814202, -0.154269, 0.580029, 12),
    "gelu_python": (-0.000814202, -0.154269, 0.580029, 12),
    "gelu_10": (-0.000814202, -0.154269, 0.580029, 10),
    "gelu_fast": (-0.000616198, -0.154286, 0.579961, 12),
    "gelu_new": (-0.000616198, -0.154286, 0.579961, 12),
    "gelu_pytorch_tanh": (-0.000616198, -0.154286, 0.579961, 12),
    "gelu_python_tanh": (-0.000616198, -0.154286, 0.579961, 12),
    "gelu_accurate": (-0.000616198, -0.154286, 0.579961, 12),
    "quick_gelu": (-0.00903345, -0.149612, 0.58639, 12),
    "hardswish": (0, -0.208333, 0.46875, 12),
    "laplace": (0, 9.38338e-06, 0.560427, 1),
    "leaky_relu": (-0.035, -0.005, 0.75, 12),
    "linear": (-3.5, -0.5, 0.75, 12),
    "mish": (-0.104096, -0.220744, 0.610018, 12),
    "relu": (0, 0, 0.75, 12),
    "relu2": (0, 0, 0.5625, 144),
    "relu6": (0, 0, 0.75, 6),
    "sigmoid": (0.0293122, 0.377541, 0.679179, 0.999994),
    "silu": (-0.102593, -0.18877, 0.509384, 11.9999),
    "swish": (-0.102593, -0.18877, 0.509384, 11.9999),
    "sqrtsoftplus": (0.172483, 0.688532, 1.06624, 3.4641),
    "tanh": (-0.998178, -0.462117, 0.635149, 1),
}


def test_activations_of_every_name():
    assert set(OF_TRANSFORMERS) == set(ACTIVATIONS)
    x = np.float32([-3.5, -0.5, 0.75, 12])
    for name, expected in OF_TRANSFORMERS.items():
        values = ACTIVATIONS[name](x)
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-7, err_msg=name)
