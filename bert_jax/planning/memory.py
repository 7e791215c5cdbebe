"""The memory of a step on a device: estimated from shapes, or measured by the compiler."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.tasks.base.task import Task, means
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.step import TrainState

# Rows of the traced batch: no axis of a model has this size, so it identifies the batch axis.
_PROBE = 7


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device at the peak of a step.

    Attributes:
        parameters: in float32.
        optimizer: the moments.
        activations: kept from the forward pass of a micro-batch for its backward pass.
        temporaries: all others: gradients, batch, buffers, the program.
    """

    parameters: int
    optimizer: int
    activations: int
    temporaries: int

    @property
    def peak(self) -> int:
        """The sum."""
        return self.parameters + self.optimizer + self.activations + self.temporaries


@dataclasses.dataclass(frozen=True)
class Activations:
    """What the forward pass keeps for the backward pass, in bytes.

    Attributes:
        per_row: of each row of a micro-batch.
        per_row_split: the part of it that the mesh axis `tensor` splits.
        fixed: independent of the number of rows: copies of kernels in another dtype.
        parameters: those that are used in float32, without a copy.
    """

    per_row: int
    per_row_split: int
    fixed: int
    parameters: int

    def bytes(self, rows: int, mesh: Mesh) -> int:
        """Bytes on one device that has `rows` rows of a micro-batch."""
        tensor = mesh.shape["tensor"]
        whole = self.per_row - self.per_row_split
        return rows * (whole + self.per_row_split // tensor) + self.fixed // tensor


def trace_activations(task: Task, optimizer: Optimizer, params: Any) -> Activations:
    """Counts what the backward pass of a task's loss needs, for any remat policy and dtype.

    These are the arrays inside the function that `jax.vjp` returns. The compiler may keep less,
    where recomputing is cheaper.

    Args:
        task: loss and batches.
        optimizer: frozen parameters have no gradient.
        params: the parameters' shapes.
    """
    batch = {
        key: jax.ShapeDtypeStruct((_PROBE, *shape.shape[1:]), shape.dtype)
        for key, shape in task.batch_shapes().items()
    }

    def backward(params: Any, batch: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            sums = task.loss_sums(optimizer.stop_frozen_gradients(params), batch, jax.random.key(0))
            return means(sums, task.loss_weights(batch))["loss"]

        return jax.vjp(loss, params)[1]

    config = task.description.config
    split_axes = {config.intermediate_size, config.num_attention_heads}
    per_row = per_row_split = fixed = parameters = 0
    for leaf in jax.tree.leaves(jax.eval_shape(backward, params, batch)):
        size = _bytes(leaf.shape, leaf.dtype)
        if _PROBE in leaf.shape:
            per_row += size // _PROBE
            per_row_split += size // _PROBE if split_axes & set(leaf.shape) else 0
        elif leaf.dtype == np.float32:
            parameters += size
        else:
            fixed += size
    return Activations(per_row, per_row_split, fixed, parameters)


def estimate(
    abstract: TrainState,
    batch: Mapping[str, jax.ShapeDtypeStruct],
    mesh: Mesh,
    activations: Activations,
    *,
    microbatches: int,
) -> Memory:
    """The memory of a step from shapes, without a compiler.

    Gradients take as much as parameters, twice with micro-batches: one part and the sum. What
    `fsdp` splits is gathered to compute with it.
    """
    parameters = device_bytes(abstract.params)
    gathered = activations.parameters // mesh.shape["tensor"] if mesh.shape["fsdp"] > 1 else 0
    rows = rows_per_device(batch, mesh, microbatches)
    return Memory(
        parameters=parameters,
        optimizer=device_bytes(abstract.opt_state),
        activations=activations.bytes(rows, mesh),
        temporaries=parameters * (2 if microbatches > 1 else 1) + gathered,
    )


def measured(analysis: Any, abstract: TrainState, activations: int) -> Memory:
    """The memory of a compiled step.

    Args:
        analysis: `compiled.memory_analysis()`.
        abstract: the state.
        activations: the estimate for its micro-batch; the compiler reports all temporaries as one.
    """
    parameters, optimizer = device_bytes(abstract.params), device_bytes(abstract.opt_state)
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


def device_bytes(tree: Any) -> int:
    """Bytes of a tree of shapes with shardings on one device."""
    return sum(
        _bytes(leaf.sharding.shard_shape(leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(tree)
    )


def _bytes(shape: tuple[int, ...], dtype: Any) -> int:
    # The dtype of random keys has no itemsize.
    return math.prod(shape) * getattr(dtype, "itemsize", 4)
