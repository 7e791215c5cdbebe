"""Activations, under the names of Hugging Face and of PyTorch's classes."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

Activation = Callable[[jax.Array], jax.Array]


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """GELU, x Φ(x) with the normal distribution's Φ: the erf form (Hendrycks and Gimpel, 2016).

    Computed in float32 for any dtype; the backward pass stores only x.
    """
    wide = x.astype(jnp.float32)
    return (wide * _normal_distribution(wide)).astype(x.dtype)


def _gelu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return gelu(x), x


def _gelu_backward(x: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    wide = x.astype(jnp.float32)
    density = jnp.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    slope = _normal_distribution(wide) + wide * density
    return ((cotangent.astype(jnp.float32) * slope).astype(x.dtype),)


gelu.defvjp(_gelu_forward, _gelu_backward)


def _normal_distribution(x: jax.Array) -> jax.Array:
    return 0.5 * (1 + jax.lax.erf(x * math.sqrt(0.5)))


# Hugging Face's names (transformers, activations.py), without functions that have parameters
# (prelu, xielu). "gelu" is the erf form, JAX's own default the tanh form.
ACTIVATIONS: dict[str, Activation] = {
    **dict.fromkeys(("gelu", "gelu_python"), gelu),
    **dict.fromkeys(
        ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"),
        jax.nn.gelu,
    ),
    "gelu_10": lambda x: gelu(x).clip(-10, 10),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "relu6": jax.nn.relu6,
    "leaky_relu": jax.nn.leaky_relu,
    **dict.fromkeys(("silu", "swish"), jax.nn.silu),
    "hardswish": jax.nn.hard_swish,
    "mish": jax.nn.mish,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    # The normal distribution with mean √½ and variance 1 / 4π.
    "laplace": lambda x: 0.5 * (1 + jax.lax.erf((x - 0.707107) / (0.282095 * math.sqrt(2)))),
    "sqrtsoftplus": lambda x: jnp.sqrt(jax.nn.softplus(x)),
    "linear": lambda x: x,
}

# The gate's activation in a gated feed-forward block (Shazeer, 2020, https://arxiv.org/abs/2002.05202),
# by T5's names: its "gelu" is the tanh form.
GATED_ACTIVATIONS: dict[str, Activation] = {
    "gated-gelu": jax.nn.gelu,
    "gated-relu": jax.nn.relu,
    "gated-silu": jax.nn.silu,
}

# By the name of PyTorch's class, with the defaults of its parameters.
PYTORCH_ACTIVATIONS: dict[str, Activation] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "ReLU6": jax.nn.relu6,
    "LeakyReLU": jax.nn.leaky_relu,
    "ELU": jax.nn.elu,
    "CELU": jax.nn.celu,
    "SELU": jax.nn.selu,
    "GELU": lambda x: jax.nn.gelu(x, approximate=False),
    "SiLU": jax.nn.silu,
    "Mish": jax.nn.mish,
    "Sigmoid": jax.nn.sigmoid,
    "LogSigmoid": jax.nn.log_sigmoid,
    "Softplus": jax.nn.softplus,
    "Softsign": jax.nn.soft_sign,
    "Tanhshrink": lambda x: x - jnp.tanh(x),
    "Hardtanh": jax.nn.hard_tanh,
    "Hardsigmoid": jax.nn.hard_sigmoid,
    "Hardswish": jax.nn.hard_swish,
}
