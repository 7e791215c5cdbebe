"""Products of activations and kernels against sums that NumPy makes in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.products import dot_general

# Inputs, kernel, and how many axes are summed over.
SHAPES = {
    "dense": ((3, 5, 16), (16, 8), 1),
    "to heads": ((3, 5, 16), (16, 2, 4), 1),
    "from heads": ((3, 5, 2, 8), (2, 8, 6), 2),
}
NUMBERS = {"dense": (((2,), (0,)), ((), ())), "to heads": (((2,), (0,)), ((), ()))}
NUMBERS["from heads"] = (((2, 3), (0, 1)), ((), ()))


def operands(name):
    inputs, kernel, axes = SHAPES[name]
    draw = np.random.default_rng(7).standard_normal
    cotangent = inputs[: len(inputs) - axes] + kernel[axes:]
    return draw(inputs), draw(kernel), draw(cotangent), axes


def rounded(array):
    return np.asarray(jnp.asarray(array, jnp.bfloat16).astype(jnp.float32), np.float64)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forward_and_backward_are_rounded_once(name, dtype):
    inputs, kernel, cotangent, axes = operands(name)
    if dtype == "bfloat16":
        inputs, kernel, cotangent = map(rounded, (inputs, kernel, cotangent))

    def product(x, w):
        return dot_general(x, w, NUMBERS[name])

    x, w, g = (jnp.asarray(array, dtype) for array in (inputs, kernel, cotangent))
    out, backward = jax.jit(lambda x, w: jax.vjp(product, x, w))(x, w)
    of_inputs, of_kernel = jax.jit(backward)(g)

    outer = kernel.ndim - axes
    rows = inputs.ndim - axes
    expected = {
        "out": np.tensordot(inputs, kernel, axes),
        "of_inputs": np.tensordot(
            cotangent,
            kernel,
            (range(rows, rows + outer), range(axes, kernel.ndim)),
        ),
        "of_kernel": np.tensordot(inputs, cotangent, (range(rows), range(rows))),
    }
    # Half a unit in the last place: a sum in bfloat16 would be many of them away.
    tolerance = {"float32": 1e-5, "bfloat16": 2.0**-8}[dtype]
    found = {"out": out, "of_inputs": of_inputs, "of_kernel": of_kernel}
    for key, array in found.items():
        assert array.dtype == dtype, key
        np.testing.assert_allclose(
            np.asarray(array, np.float64), expected[key], rtol=tolerance, atol=1e-5, err_msg=key
        )


def test_long_sums_do_not_stop_growing():
    ones = jnp.ones((1, 4096), jnp.bfloat16)
    rows = jnp.ones((4096, 1), jnp.bfloat16)
    # In bfloat16 a sum of ones ends at 256.
    assert dot_general(ones, rows, (((1,), (0,)), ((), ())))[0, 0] == 4096
    gradient = jax.grad(lambda w: dot_general(rows, w, (((1,), (0,)), ((), ()))).sum())(ones[:, :1])
    assert gradient[0, 0] == 4096
