"""Products of activations with parameters, summed in float32 for any dtype.

Both passes multiply in the dtype of the activations. A bfloat16 product is rounded once, after its
float32 sum is complete and includes the bias. JAX's own gradient of a product that is summed in
float32 would multiply a float32 cotangent with a bfloat16 factor.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

# Remat policies refer to the results by this name; they cannot see inside a function with a custom
# gradient.
MATMUL_OUTPUT = "matmul output"


def affine(axes: int, inputs: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Inputs · kernel + bias, summed over the last `axes` axes of the inputs.

    Args:
        axes: number of axes of I.
        inputs: [..., I], float32 or bfloat16.
        kernel: [I, O], where O may also be several axes; multiplied in the dtype of the inputs.
            Its gradient is rounded to that dtype, so that devices exchange half as many bytes.
        bias: [O].

    Returns:
        [..., O] in the dtype of the inputs.
    """
    return checkpoint_name(_affine(axes, inputs, kernel.astype(inputs.dtype), bias), MATMUL_OUTPUT)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _affine(axes: int, inputs: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    sums = matmul(*_matrices(axes, inputs, kernel)) + bias.reshape(-1)
    return sums.astype(inputs.dtype).reshape(inputs.shape[:-axes] + bias.shape)


def _forward(axes: int, *operands: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return _affine(axes, *operands), operands


def _backward(axes: int, saved: tuple[jax.Array, ...], cotangent: jax.Array) -> Any:
    inputs, kernel = _matrices(axes, *saved[:2])  # MI, IO
    cotangent = cotangent.reshape(len(inputs), -1)  # MO
    d_inputs = matmul_nt(cotangent, kernel)  # MI
    d_kernel = matmul_tn(inputs, cotangent)  # IO
    d_bias = cotangent.astype(jnp.float32).sum(axis=0)  # O
    gradients = (d_inputs, d_kernel, d_bias)
    return tuple(
        gradient.astype(operand.dtype).reshape(operand.shape)
        for gradient, operand in zip(gradients, saved, strict=True)
    )


_affine.defvjp(_forward, _backward)


def _matrices(axes: int, inputs: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """[M, I] and [I, O]: BLAS libraries are fastest with a single contracted axis."""
    width = math.prod(kernel.shape[:axes])
    return inputs.reshape(-1, width), kernel.reshape(width, -1)


def scores(vectors: jax.Array, table: jax.Array) -> jax.Array:
    """The products of vectors with all rows of a table.

    Args:
        vectors: [..., I], float32 or bfloat16.
        table: [V, I], multiplied in the dtype of the vectors, as is the gradient of the scores.

    Returns:
        float32 [..., V].
    """
    return checkpoint_name(_scores(vectors, table.astype(vectors.dtype)), MATMUL_OUTPUT)


@jax.custom_vjp
def _scores(vectors: jax.Array, table: jax.Array) -> jax.Array:
    rows = vectors.reshape(-1, vectors.shape[-1])  # MI
    return matmul_nt(rows, table).reshape(*vectors.shape[:-1], -1)


def _scores_forward(*operands: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return _scores(*operands), operands


def _scores_backward(saved: tuple[jax.Array, ...], cotangent: jax.Array) -> Any:
    vectors, table = saved
    rows = vectors.reshape(-1, vectors.shape[-1])  # MI
    rounded = cotangent.astype(rows.dtype).reshape(len(rows), -1)  # MV
    d_rows = matmul(rounded, table)  # MI
    d_table = matmul_tn(rounded, rows)  # VI
    return d_rows.astype(rows.dtype).reshape(vectors.shape), d_table.astype(table.dtype)


_scores.defvjp(_scores_forward, _scores_backward)


def matmul(left: jax.Array, right: jax.Array) -> jax.Array:
    """Left · right: [..., M, I] and [..., I, O] → float32 [..., M, O]."""
    return _matmul(left, right, -1, -2)


def matmul_nt(left: jax.Array, right: jax.Array) -> jax.Array:
    """Left · rightᵀ: [..., M, I] and [..., O, I] → float32 [..., M, O]."""
    return _matmul(left, right, -1, -1)


def matmul_tn(left: jax.Array, right: jax.Array) -> jax.Array:
    """Leftᵀ · right: [..., M, I] and [..., M, O] → float32 [..., I, O].

    On a CPU, XLA's fast bfloat16 product contracts the last axis of the left matrix; for another
    axis it converts everything to float32 first and takes twice as long. XLA folds a plain
    transposition into the product, which restores that slow case, but not a transposition with the
    contracted axis reversed in both.
    """

    def reversed_product(left: jax.Array, right: jax.Array) -> jax.Array:
        return _matmul(jnp.flip(left.swapaxes(-1, -2), -1), jnp.flip(right, -2), -1, -2)

    def plain_product(left: jax.Array, right: jax.Array) -> jax.Array:
        return _matmul(left, right, -2, -2)

    if left.dtype == jnp.float32:
        return plain_product(left, right)
    return jax.lax.platform_dependent(left, right, cpu=reversed_product, default=plain_product)


def _matmul(left: jax.Array, right: jax.Array, left_axis: int, right_axis: int) -> jax.Array:
    """The product that contracts one axis of each operand, float32."""
    axes = ((left.ndim + left_axis,), (right.ndim + right_axis,))
    batch = tuple(range(left.ndim - 2))
    return jax.lax.dot_general(
        left, right, (axes, (batch, batch)), preferred_element_type=jnp.float32
    )
