"""The memory of a step on a device, as far as shapes tell it."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.models.encoder import abstract_params
from bert_jax.sharding.mesh import array_bytes, batch_parts, one_device_mesh
from bert_jax.tasks.base.task import Task, means, with_rows
from bert_jax.training.optimizer import Optimizer

# Rows of the two traced batches: axes with different sizes are axes of the batch.
_FEW, _MANY = 2, 3


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on one device at the peak of a step.

    Attributes:
        parameters: bytes of the parameters, float32, including a teacher's.
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
        """The total."""
        return self.parameters + self.optimizer + self.activations + self.temporaries


@dataclasses.dataclass(frozen=True)
class Activations:
    """Bytes that the forward pass keeps for the backward pass.

    Attributes:
        per_row: bytes per row of a micro-batch.
        per_row_split: bytes of `per_row` that the mesh axis `tensor` splits.
        per_two_rows: bytes of each row with each other one, for losses that compare all rows.
        fixed: bytes independent of the number of rows: copies of kernels in another dtype.
        parameters: bytes of parameters that are used in float32, without a copy.
    """

    per_row: int
    per_row_split: int
    fixed: int
    parameters: int
    per_two_rows: int = 0

    def bytes(self, rows: int, mesh: Mesh, microbatches: int = 1) -> int:
        """Bytes on one device for `rows` rows of a micro-batch; all are compared with all."""
        tensor = mesh.shape["tensor"]
        whole = self.per_row - self.per_row_split
        all_rows = rows * batch_parts(mesh)
        return (
            rows * (whole + self.per_row_split // tensor)
            + rows * all_rows * microbatches**2 * self.per_two_rows
            + self.fixed // tensor
        )


def trace_activations(task: Task, optimizer: Optimizer) -> Activations:
    """The arrays that the backward pass of a task's loss needs, for any remat policy and dtype.

    These are the arrays inside the function that `jax.vjp` returns, and the outputs of a teacher.
    The compiler may keep fewer, if recomputing them is cheaper. Frozen parameters have no gradient.
    """

    def backward(params: Any, frozen_params: Any, batch: Any) -> Any:
        outputs = task.frozen_inputs.outputs(frozen_params, batch)

        def loss(params: Any) -> jax.Array:
            learning = optimizer.stop_frozen_gradients(params)
            sums = task.loss_sums(learning, batch | outputs, jax.random.key(0))
            return means(sums, task.loss_weights(batch), task.total_loss)["loss"]

        return jax.vjp(loss, params)[1], outputs

    config, batch = task.description.config, task.batch_shapes()
    # Recurrent layers have 1 of each, and nothing that is split.
    split_axes = {config.intermediate_size, config.num_attention_heads} - {1}
    state = abstract_params(task.module), task.frozen_inputs.abstract_params(one_device_mesh())
    few, many = (
        jax.tree.leaves(jax.eval_shape(backward, *state, with_rows(batch, rows)))
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
