"""Matrix products of activations and kernels, summed in float32 whatever their dtype.

A product of bfloat16 numbers is rounded once, when its float32 sum is whole: in the forward pass,
and in both products of the backward pass, where JAX alone would round what it multiplies with.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp


def dot_general(
    inputs: jax.Array, kernel: jax.Array, dimension_numbers: Any, precision: Any = None
) -> jax.Array:
    """`jax.lax.dot_general` for `flax.linen.DenseGeneral`: last axes of inputs, first of a kernel.

    Both become matrices first: a sum over one axis is what libraries of products are made for.

    Args:
        inputs: [..., K], where K may be several axes.
        kernel: [K, ...], of the same dtype.
        dimension_numbers: as `DenseGeneral` gives them.
        precision: as `jax.lax.dot_general` has it.

    Returns:
        [..., ...] in the dtype of the inputs.
    """
    (axes, _), _ = dimension_numbers
    rows, features = inputs.shape[: -len(axes)], kernel.shape[len(axes) :]
    width = math.prod(kernel.shape[: len(axes)])
    matrices = inputs.reshape(-1, width), kernel.reshape(width, -1)
    if inputs.dtype == jnp.float32:
        return jnp.dot(*matrices, precision=precision).reshape(rows + features)
    return _product(*matrices).reshape(rows + features)


@jax.custom_vjp
def _product(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """[M, K] and [K, F] → [M, F]."""
    return _sum(inputs, kernel, 1, 0).astype(inputs.dtype)


def _forward(
    inputs: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(inputs, kernel), (inputs, kernel)


def _backward(
    saved: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    inputs, kernel = saved
    of_inputs = _sum(cotangent, kernel, 1, 1)  # MK
    of_kernel = jax.lax.platform_dependent(
        inputs, cotangent, cpu=_sum_over_rows_on_cpu, default=_sum_over_rows
    )  # KF
    return of_inputs.astype(inputs.dtype), of_kernel.astype(kernel.dtype)


_product.defvjp(_forward, _backward)


def _sum(left: jax.Array, right: jax.Array, left_axis: int, right_axis: int) -> jax.Array:
    """The product over an axis of each, float32."""
    return jax.lax.dot_general(
        left,
        right,
        (((left_axis,), (right_axis,)), ((), ())),
        preferred_element_type=jnp.float32,
    )


def _sum_over_rows(left: jax.Array, right: jax.Array) -> jax.Array:
    """[M, K] and [M, F] → float32 [K, F]."""
    return _sum(left, right, 0, 0)


def _sum_over_rows_on_cpu(left: jax.Array, right: jax.Array) -> jax.Array:
    """The same, twice as fast on a CPU.

    XLA's fast product of bfloat16 matrices wants the rows of the left one to be summed over; for
    another axis it makes all float32 first. A transposition alone it folds into the product, which
    is that other axis again. It does not so if both are reversed along the sum.
    """
    return _sum(jnp.flip(left.T, 1), jnp.flip(right, 0), 1, 0)
