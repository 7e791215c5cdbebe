"""Adafactor as T5 was trained with it: second moments of a matrix from the means of its axes.

For a matrix with gradient G [in, out] at step t = 1, 2, … (Shazeer and Stern, 2018, algorithm 4):

    decay = 1 - t^-0.8
    r     = decay · r + (1 - decay) · mean over out of (G² + 1e-30)       [in]
    c     = decay · c + (1 - decay) · mean over in of (G² + 1e-30)        [out]
    U     = G / sqrt(r · c / mean(r))
    U     = U / max(1, RMS(U))                                            clipping
    U     = U · max(0.001, RMS(W)), with W the matrix                     size of the parameter

There is no first moment, and the learning rate is the schedule's. Vectors, and matrices with fewer
than 128 inputs or outputs, keep all their second moments. These are the defaults of
`optax.adafactor` and of Mesh TensorFlow, in which T5 was trained.

Both see [in, out] matrices. Here the layers of an encoder are stacked, and the axes of heads are
separate: each layer [D, N, H] of a kernel [L, D, N, H] is one matrix of D inputs and N·H outputs,
with its own moments, clipping and size. optax would take the two largest of the four axes.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.models.parameter_sharding import parameter_axes
from bert_jax.sharding.rules import match, name_of

_DECAY_EXPONENT = 0.8
_SMALLEST_SQUARE = 1e-30
_CLIPPING = 1.0
_SMALLEST_SCALE = 1e-3
_SMALLEST_FACTORED = 128


class FactoredMoments(NamedTuple):
    """State of Adafactor.

    Attributes:
        steps: int32 scalar, steps done.
        rows: for each parameter, means of squared gradients over the outputs, whose axes are 1;
            of a parameter that is no matrix, the squared gradients without a mean.
        columns: means over the inputs, whose axes are 1; a scalar 0 for a parameter that is no
            matrix.
    """

    steps: jax.Array
    rows: Any
    columns: Any


@dataclasses.dataclass(frozen=True)
class _Matrix:
    """The axes of a parameter.

    Attributes:
        inputs, outputs: axes of the matrix; () if the moments are not factored.
        own: all axes but the layers'.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    own: tuple[int, ...]


def adafactor_direction() -> optax.GradientTransformation:
    """Updates U of the module's formulas, in float32."""

    def init(params: Any) -> FactoredMoments:
        matrices = _matrices(params)
        return FactoredMoments(
            jnp.int32(0),
            jax.tree.map(lambda matrix, param: _zeros(param, matrix.outputs), matrices, params),
            jax.tree.map(
                lambda matrix, param: (
                    _zeros(param, matrix.inputs) if matrix.inputs else jnp.float32(0)
                ),
                matrices,
                params,
            ),
        )

    def update(updates: Any, state: FactoredMoments, params: Any) -> tuple[Any, FactoredMoments]:
        matrices = _matrices(params)
        steps = state.steps + 1
        new = steps.astype(jnp.float32) ** -_DECAY_EXPONENT

        def mean(axes: tuple[int, ...], gradient: jax.Array, before: jax.Array) -> jax.Array:
            squares = jnp.square(gradient) + _SMALLEST_SQUARE
            return (1 - new) * before + new * squares.mean(axes, keepdims=True)

        rows = jax.tree.map(
            lambda matrix, *values: mean(matrix.outputs, *values), matrices, updates, state.rows
        )
        columns = jax.tree.map(
            lambda matrix, gradient, before: (
                mean(matrix.inputs, gradient, before) if matrix.inputs else before
            ),
            matrices,
            updates,
            state.columns,
        )
        direction = jax.tree.map(_direction, matrices, updates, rows, columns, params)
        return direction, FactoredMoments(steps, rows, columns)

    return optax.GradientTransformation(init, update)


def _direction(
    matrix: _Matrix, gradient: jax.Array, rows: jax.Array, columns: jax.Array, param: jax.Array
) -> jax.Array:
    """The update of one parameter, from its new moments."""

    def root_mean_square(x: jax.Array) -> jax.Array:
        return jnp.sqrt(jnp.square(x).mean(matrix.own, keepdims=True))

    if matrix.inputs:
        # Not of the product, which may be less than the smallest float32.
        rows = rows / rows.mean(matrix.inputs, keepdims=True)
        update = gradient * jax.lax.rsqrt(rows) * jax.lax.rsqrt(columns)
    else:
        update = gradient * jax.lax.rsqrt(rows)
    update = update / jnp.maximum(1.0, root_mean_square(update) / _CLIPPING)
    return update * jnp.maximum(_SMALLEST_SCALE, root_mean_square(param))


def _zeros(param: jax.Array, averaged: tuple[int, ...]) -> jax.Array:
    shape = [1 if axis in averaged else size for axis, size in enumerate(param.shape)]
    return jnp.zeros(shape, jnp.float32)


def _matrices(params: Any) -> Any:
    """The `_Matrix` of each parameter: the axes "heads" and "head" are together one side of it."""
    all_axes = parameter_axes()

    def matrix(path: Any, param: jax.Array) -> _Matrix:
        name = name_of(path)
        named = match(all_axes, name)
        own = tuple(range(int("layers" in name.split("/")), param.ndim))
        sides: list[tuple[int, ...]] = []
        for axis in own:
            if axis < len(named) and named[axis] == "head":
                sides[-1] += (axis,)
            else:
                sides.append((axis,))
        sizes = [math.prod(param.shape[axis] for axis in side) for side in sides]
        if len(sides) != 2 or min(sizes) < _SMALLEST_FACTORED:
            return _Matrix((), (), own)
        return _Matrix(sides[0], sides[1], own)

    return jax.tree_util.tree_map_with_path(matrix, params)
