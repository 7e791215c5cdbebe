"""The training state: all that a step reads and writes."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax.models.bert import init_params
from bert_jax.sharding.rules import state_shardings
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer


class TrainState(flax.struct.PyTreeNode):
    """State after `step` steps.

    Attributes:
        step: int32 scalar, steps done; it is also the data position and seeds the dropout.
        params: float32 parameters.
        opt_state: the optimizer's moments.
    """

    step: jax.Array
    params: Any
    opt_state: Any


def abstract_state(task: Task, optimizer: Optimizer, mesh: Mesh) -> TrainState:
    """Shapes, dtypes and shardings of the state, without computing it.

    Raises:
        UserError: the optimizer's options do not fit the model, or the model the mesh.
    """
    shapes = jax.eval_shape(lambda: _initial_state(task, optimizer, np.uint32(0)))
    shardings = state_shardings(mesh, shapes).replace(
        opt_state=state_shardings(mesh, shapes.opt_state, optimizer.mesh_axes)
    )
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        shardings,
    )


def new_state(task: Task, optimizer: Optimizer, abstract: TrainState, *, seed: int) -> TrainState:
    """A fresh state, each part computed on the devices that hold it."""
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    make = jax.jit(lambda seed: _initial_state(task, optimizer, seed), out_shardings=shardings)
    return make(np.uint32(seed))


def with_params(state: TrainState, params: Any) -> TrainState:
    """The state with other parameters, laid out as its own."""
    placed = jax.tree.map(lambda old, new: jax.device_put(new, old.sharding), state.params, params)
    return state.replace(params=placed)


def _initial_state(task: Task, optimizer: Optimizer, seed: Any) -> TrainState:
    params = init_params(task.module, jax.random.key(seed))
    return TrainState(jnp.int32(0), params, optimizer.init(params))
