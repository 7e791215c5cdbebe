"""Affine maps and matrix products against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.kernels.matmul import affine, matmul, matmul_nt, matmul_tn, scores

# Inputs, kernel, and how many axes are summed over.
SHAPES = {
    "dense": ((3, 5, 16), (16, 8), 1),
    "to heads": ((3, 5, 16), (16, 2, 4), 1),
    "from heads": ((3, 5, 2, 8), (2, 8, 6), 2),
}
DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
# Half a unit of the last digit; a sum in bfloat16 would be many units away.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-8}


def drawn(dtype, *shapes):
    """Random numbers that the dtype can hold, in float64."""
    draw = np.random.default_rng(7).standard_normal
    rounded = [draw(shape).astype(jnp.dtype(dtype)) for shape in shapes]
    return [np.asarray(array, np.float64) for array in rounded]


@pytest.mark.parametrize("name", SHAPES)
@DTYPES
def test_forward_and_backward_are_rounded_once(name, dtype):
    of_inputs, of_kernel, axes = SHAPES[name]
    of_bias = of_kernel[axes:]
    rows = len(of_inputs) - axes
    inputs, kernel, bias, cotangent = drawn(
        dtype, of_inputs, of_kernel, of_bias, of_inputs[:rows] + of_bias
    )
    *arrays, last = (x.astype(jnp.dtype(dtype)) for x in (inputs, kernel, bias, cotangent))

    @jax.jit
    def run(operands, cotangent):
        out, backward = jax.vjp(lambda *o: affine(axes, *o), *operands)
        return out, *backward(cotangent)

    out, *gradients = run(arrays, last)

    expected = {
        "out": np.tensordot(inputs, kernel, axes) + bias,
        "of inputs": np.tensordot(
            cotangent,
            kernel,
            (range(rows, cotangent.ndim), range(axes, kernel.ndim)),
        ),
        "of kernel": np.tensordot(inputs, cotangent, (range(rows), range(rows))),
        "of bias": cotangent.sum(axis=tuple(range(rows))),
    }
    for (key, exact), array in zip(expected.items(), (out, *gradients), strict=True):
        assert array.dtype == dtype, key
        np.testing.assert_allclose(
            np.asarray(array, np.float64), exact, rtol=TOLERANCE[dtype], atol=1e-5, err_msg=key
        )


def test_parameters_stay_float32():
    rows = np.ones((4096, 1), jnp.bfloat16)
    kernel, bias = np.ones((1, 1), np.float32), np.ones(1, np.float32)
    gradients = jax.jit(jax.grad(lambda w, b: affine(1, rows, w, b).sum(), (0, 1)))(kernel, bias)
    # In bfloat16 a sum of ones ends at 256.
    assert [gradient.dtype for gradient in gradients] == [jnp.float32, jnp.float32]
    assert [gradient.item() for gradient in gradients] == [4096, 4096]


@DTYPES
def test_scores_of_a_table(dtype):
    vectors, table, cotangent = drawn(dtype, (2, 5, 16), (7, 16), (2, 5, 7))

    @jax.jit
    def run(vectors, table, cotangent):
        logits, backward = jax.vjp(scores, vectors, table)
        return logits, *backward(cotangent)

    logits, of_vectors, of_table = run(
        vectors.astype(jnp.dtype(dtype)), table.astype(np.float32), cotangent.astype(np.float32)
    )
    assert (logits.dtype, of_vectors.dtype, of_table.dtype) == (jnp.float32, dtype, jnp.float32)
    np.testing.assert_allclose(logits, vectors @ table.T, rtol=1e-5, atol=1e-5)
    for gradient, truth in (
        (of_vectors, cotangent @ table),
        (of_table, np.einsum("BPV,BPD->VD", cotangent, vectors)),
    ):
        np.testing.assert_allclose(
            np.asarray(gradient, np.float64), truth, rtol=TOLERANCE[dtype], atol=1e-5
        )


@DTYPES
def test_products_of_batches_of_matrices(dtype):
    left, right = drawn(dtype, (2, 3, 5, 16), (2, 3, 16, 4))

    @jax.jit
    def run(left, right):
        transposed = left.swapaxes(-1, -2), right.swapaxes(-1, -2)
        return matmul(left, right), matmul_nt(left, transposed[1]), matmul_tn(transposed[0], right)

    for array in run(*(x.astype(jnp.dtype(dtype)) for x in (left, right))):
        assert array.dtype == jnp.float32
        np.testing.assert_allclose(array, left @ right, rtol=1e-5, atol=1e-5)
