"""How much memory a step takes on a device: what shapes tell, and what a compiler says."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.tasks.base.task import Task, means
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.state import TrainState

# Rows of a traced batch: a number that no axis of a model has, so that it marks the batch.
_PROBE = 7


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device at the peak of a step.

    Attributes:
        parameters: the float32 masters.
        optimizer: the moments.
        activations: what the backward pass keeps of the forward pass of a micro-batch.
        temporaries: all else: gradients, batch, buffers, the program.
    """

    parameters: int
    optimizer: int
    activations: int
    temporaries: int

    @property
    def peak(self) -> int:
        """All of it."""
        return self.parameters + self.optimizer + self.activations + self.temporaries


@dataclasses.dataclass(frozen=True)
class Activations:
    """What a backward pass keeps, as bytes.

    Attributes:
        per_row: of each row of a micro-batch.
        per_row_split: the part of it that the tensor axis splits.
        fixed: whatever the number of rows; copies of kernels in another dtype.
        parameters: those that are used as they are, in float32.
    """

    per_row: int
    per_row_split: int
    fixed: int
    parameters: int

    def bytes(self, rows: int, mesh: Mesh) -> int:
        """On one device, with so many rows of a micro-batch there."""
        tensor = mesh.shape["tensor"]
        whole = self.per_row - self.per_row_split
        return rows * (whole + self.per_row_split // tensor) + self.fixed // tensor


def trace_activations(task: Task, optimizer: Optimizer, params: Any) -> Activations:
    """Counts what the backward pass of a task's loss needs, for any remat policy and dtype.

    JAX says so itself: the function that it returns for the backward pass holds these arrays. The
    compiler may keep less, where it finds computing again cheaper.

    Args:
        task: loss and batches.
        optimizer: knows what is frozen.
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
    """The memory of a step as far as shapes tell, without a compiler.

    Gradients take as much as parameters; those of a micro-batch are added to a sum. What `fsdp`
    splits is put together to compute with it.
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
        activations: the estimate for its micro-batch, which the compiler does not tell apart.
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
    # Keys of random numbers have a dtype of JAX's own.
    return math.prod(shape) * getattr(dtype, "itemsize", 4)
