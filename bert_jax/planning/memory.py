"""The memory of a step on a device: estimated from shapes, or measured by the compiler."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.sharding.memory import array_bytes, device_bytes
from bert_jax.tasks.base.task import Task, means, with_rows
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import TrainState

# Rows of the two traced batches: axes that differ are those of the batch.
_FEW, _MANY = 2, 3


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device at the peak of a step.

    Attributes:
        parameters: bytes of the parameters, float32, with those of a teacher.
        optimizer: bytes of the moments.
        activations: bytes kept from the forward pass of a micro-batch for its backward pass.
        temporaries: all other bytes: gradients, batch, buffers, the program.
    """

    parameters: int
    optimizer: int
    activations: int
    temporaries: int

    @property
    def peak(self) -> int:
        """The total of all parts."""
        return self.parameters + self.optimizer + self.activations + self.temporaries


@dataclasses.dataclass(frozen=True)
class Activations:
    """Bytes that the forward pass keeps for the backward pass.

    Attributes:
        per_row: bytes per row of a micro-batch.
        per_row_split: part of `per_row` that the mesh axis `tensor` splits.
        per_two_rows: bytes of each row with each other one, for losses that compare all rows.
        fixed: bytes independent of the number of rows: copies of kernels in another dtype.
        parameters: bytes of parameters that are used in float32, without a copy.
    """

    per_row: int
    per_row_split: int
    fixed: int
    parameters: int
    per_two_rows: int = 0

    def bytes(self, rows: int, mesh: Mesh) -> int:
        """Bytes on one device for `rows` rows of a micro-batch."""
        tensor = mesh.shape["tensor"]
        whole = self.per_row - self.per_row_split
        all_rows = rows * mesh.shape["data"] * mesh.shape["fsdp"]
        return (
            rows * (whole + self.per_row_split // tensor)
            + rows * all_rows * self.per_two_rows
            + self.fixed // tensor
        )


def trace_activations(
    task: Task, optimizer: Optimizer, params: Any, constants: Any = None
) -> Activations:
    """The arrays that the backward pass of a task's loss needs, for any remat policy and dtype.

    These are the arrays inside the function that `jax.vjp` returns, and the outputs of a teacher.
    The compiler may keep fewer, if recomputing them is cheaper.

    Args:
        task: task with loss and batches.
        optimizer: optimizer; frozen parameters have no gradient.
        params: shapes of the parameters.
        constants: shapes of those that are not trained, see `Task.constants`.
    """

    def backward(params: Any, constants: Any, batch: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            learning = optimizer.stop_frozen_gradients(params)
            sums = task.training_sums(learning, constants, batch, jax.random.key(0))
            return means(sums, task.loss_weights(batch), task.total_loss)["loss"]

        return jax.vjp(loss, params)[1], task.constant_outputs(constants, batch)

    config = task.description.config
    split_axes = {config.intermediate_size, config.num_attention_heads}
    batch = task.batch_shapes()
    few, many = (
        jax.tree.leaves(jax.eval_shape(backward, params, constants, with_rows(batch, rows)))
        for rows in (_FEW, _MANY)
    )
    per_row = per_row_split = per_two_rows = fixed = parameters = 0
    for leaf, larger in zip(few, many, strict=True):
        size = array_bytes(leaf.shape, leaf.dtype)
        same = [axis for axis, other in zip(leaf.shape, larger.shape, strict=True) if axis == other]
        if len(same) == len(leaf.shape) - 2:
            per_two_rows += size // _FEW**2
        elif len(same) < len(leaf.shape):
            per_row += size // _FEW
            per_row_split += size // _FEW if split_axes & set(same) else 0
        elif leaf.dtype == np.float32:
            parameters += size
        else:
            fixed += size
    return Activations(per_row, per_row_split, fixed, parameters, per_two_rows)


def estimate(
    abstract: TrainState,
    batch: Mapping[str, jax.ShapeDtypeStruct],
    mesh: Mesh,
    activations: Activations,
    *,
    microbatches: int,
    constants: Any = None,
) -> Memory:
    """The memory of a step from shapes, without a compiler.

    Gradients take as much as parameters, twice with micro-batches: one part and the sum. Parameters
    split by `fsdp` are gathered for the computation.
    """
    parameters, kept = device_bytes(abstract.params), device_bytes(constants)
    gathered = activations.parameters // mesh.shape["tensor"] if mesh.shape["fsdp"] > 1 else 0
    rows = rows_per_device(batch, mesh, microbatches)
    return Memory(
        parameters=parameters + kept,
        optimizer=device_bytes(abstract.opt_state),
        activations=activations.bytes(rows, mesh),
        temporaries=parameters * (2 if microbatches > 1 else 1) + gathered,
    )


def measured(
    analysis: Any, abstract: TrainState, activations: int, constants: Any = None
) -> Memory:
    """The memory of a compiled step.

    Args:
        analysis: the result of `compiled.memory_analysis()`.
        abstract: shapes of the state.
        activations: the estimate for its micro-batch; the compiler reports only the sum of
            temporaries.
        constants: see `trace_activations`.
    """
    parameters = device_bytes((abstract.params, constants))
    optimizer = device_bytes(abstract.opt_state)
    temporary = analysis.temp_size_in_bytes
    activations = min(activations, temporary)
    peak = (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
        + temporary
        + analysis.generated_code_size_in_bytes
    )
    return Memory(parameters, optimizer, activations, peak - parameters - optimizer - activations)


def rows_per_device(batch: Mapping[str, Any], mesh: Mesh, microbatches: int) -> int:
    """Rows of a micro-batch on one device."""
    rows = next(iter(batch.values())).shape[0]
    return max(1, rows // (mesh.shape["data"] * mesh.shape["fsdp"] * microbatches))
