"""The functions behind `hidden_act`."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
    """X Φ(x) with the normal distribution's Φ, the erf form (Hendrycks and Gimpel, 2016).

    Computed in float32 whatever the dtype; the backward pass keeps nothing but x.
    """
    wide = x.astype(jnp.float32)
    return (wide * _normal_distribution(wide)).astype(x.dtype)


def _forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return gelu(x), x


def _backward(x: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    wide = x.astype(jnp.float32)
    density = jnp.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    slope = _normal_distribution(wide) + wide * density
    return ((cotangent.astype(jnp.float32) * slope).astype(x.dtype),)


gelu.defvjp(_forward, _backward)


def _normal_distribution(x: jax.Array) -> jax.Array:
    return 0.5 * (1 + jax.lax.erf(x * math.sqrt(0.5)))


def activation(name: str) -> Callable[[jax.Array], jax.Array]:
    """A function by its name; "gelu" is the erf form, JAX's own default the other."""
    functions: dict[str, Callable[[jax.Array], jax.Array]] = {
        "gelu": gelu,
        "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
        "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
        "relu": jax.nn.relu,
        "silu": jax.nn.silu,
        "swish": jax.nn.silu,
        "tanh": jnp.tanh,
    }
    return functions[name]
