"""Matrix products of activations and kernels, summed in float32 whatever their dtype.

A product of bfloat16 numbers is rounded once, when its float32 sum is whole: in the forward pass,
and in both products of the backward pass, where JAX alone would round what it multiplies with.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

# Remat policies know a product by this name; what a function with a gradient of its own computes
# inside, they do not see.
PRODUCT = "product"

Pair = tuple[jax.Array, jax.Array]


def dot_general(
    inputs: jax.Array, kernel: jax.Array, dimension_numbers: Any, precision: None = None
) -> jax.Array:
    """`jax.lax.dot_general` for `flax.linen.DenseGeneral`: last axes of inputs, first of a kernel.

    Args:
        inputs: [..., K], where K may be several axes.
        kernel: [K, ...], of the same dtype.
        dimension_numbers: as `DenseGeneral` gives them.
        precision: none; `jax.default_matmul_precision` says it.

    Returns:
        [..., ...] in the dtype of the inputs.
    """
    (axes, _), _ = dimension_numbers
    return checkpoint_name(_product(len(axes), inputs, kernel), PRODUCT)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(axes: int, inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """The sum over the last `axes` axes of the inputs, the first ones of the kernel."""
    matrices = _matrices(axes, inputs, kernel)
    shape = inputs.shape[:-axes] + kernel.shape[axes:]
    return _sum(*matrices, 1, 0).astype(inputs.dtype).reshape(shape)


def _forward(axes: int, inputs: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Pair]:
    return _product(axes, inputs, kernel), (inputs, kernel)


def _backward(axes: int, saved: Pair, cotangent: jax.Array) -> Pair:
    inputs, kernel = _matrices(axes, *saved)  # MK, KF
    cotangent = cotangent.reshape(len(inputs), -1)  # MF
    of_inputs = _sum(cotangent, kernel, 1, 1)  # MK
    if cotangent.dtype == jnp.float32:
        of_kernel = _sum_over_rows(inputs, cotangent)  # KF
    else:
        of_kernel = jax.lax.platform_dependent(
            inputs, cotangent, cpu=_sum_over_rows_on_cpu, default=_sum_over_rows
        )
    return (
        of_inputs.astype(inputs.dtype).reshape(saved[0].shape),
        of_kernel.astype(kernel.dtype).reshape(saved[1].shape),
    )


_product.defvjp(_forward, _backward)


def _matrices(axes: int, inputs: jax.Array, kernel: jax.Array) -> Pair:
    """[M, K] and [K, F]: a sum over one axis is what libraries of products are made for."""
    width = math.prod(kernel.shape[:axes])
    return inputs.reshape(-1, width), kernel.reshape(width, -1)


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
    """The same, twice as fast for bfloat16 on a CPU.

    XLA's fast product of bfloat16 matrices wants the rows of the left one to be summed over; for
    another axis it makes all float32 first. A transposition alone it folds into the product, which
    is that other axis again. It does not so if both are reversed along the sum.
    """
    return _sum(jnp.flip(left.T, 1), jnp.flip(right, 0), 1, 0)
