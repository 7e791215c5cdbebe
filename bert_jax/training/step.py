"""One step of training and one of evaluation, as pure functions under jit."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from bert_jax.data.pipeline import Batch
from bert_jax.sharding.mesh import programs_may_overlap
from bert_jax.sharding.rules import batch_sharding, gathered, on_mesh, state_shardings
from bert_jax.tasks.base.task import Sums, Task, means
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.state import TrainState

Result = TypeVar("Result")
GlobalBatch = dict[str, jax.Array]
EvaluationStep = Callable[[Any, GlobalBatch], tuple[Sums, dict[str, jax.Array]]]


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """The step of a training: (state, global batch) → (next state, metrics); the state is donated.

    Attributes:
        program: the jitted function of state, batch, seed of the dropout and learning rate.
        rate_at: the learning rate of a step.
        mesh: where it runs.
        seed: of the dropout.
    """

    program: jax.stages.Wrapped
    rate_at: Callable[[jax.Array], jax.Array]
    mesh: Mesh
    seed: int

    def __call__(
        self, state: TrainState, batch: GlobalBatch
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Runs a step."""
        rate = self.rate_at(state.step)
        with on_mesh(self.mesh):
            result = self.program(state, batch, np.uint32(self.seed), rate)
            return _one_at_a_time(self.mesh, result)

    def trace(
        self, state: TrainState, batch: Mapping[str, jax.ShapeDtypeStruct]
    ) -> jax.stages.Traced:
        """The program of a step for shapes, to be looked at or compiled; nothing is computed."""
        seed, rate = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.float32))
        with on_mesh(self.mesh):
            return self.program.trace(state, dict(batch), seed, rate)


def make_train_step(
    task: Task,
    optimizer: Optimizer,
    *,
    mesh: Mesh,
    abstract: TrainState,
    microbatches: int,
    seed: int,
) -> TrainStep:
    """The jitted step of a training.

    The gradient is that of the loss over the global batch: each part of the loss is divided by its
    weight in the whole batch before micro-batches are added.

    There is a program for each shape of a batch. Seed and learning rate are arguments of it, so
    that runs which differ in nothing else find it in the compilation cache.

    Args:
        task: loss and metrics.
        optimizer: gradient to next parameters, clipping included.
        mesh: where it runs.
        abstract: shapes and shardings of the state.
        microbatches: into how many parts the batch is cut to save memory.
        seed: of the dropout.
    """
    # Where the optimizer wants the gradients: whoever updates a part needs no more than the sum of
    # all devices' gradients of that part.
    gradient_shardings = state_shardings(mesh, abstract.params, optimizer.mesh_axes)

    def loss_of(
        params: Any, batch: GlobalBatch, weights: dict[str, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, Sums]:
        params = gathered(mesh, optimizer.stop_frozen_gradients(params))
        sums = task.loss_sums(params, batch, key)
        return means(sums, weights)["loss"], sums

    def step(
        state: TrainState, batch: GlobalBatch, seed: jax.Array, rate: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        weights = task.loss_weights(batch)
        step_key = jax.random.fold_in(jax.random.key(seed), state.step)
        gradient = jax.grad(loss_of, has_aux=True)

        def add_microbatch(total: Any, part: tuple[jax.Array, GlobalBatch]) -> tuple[Any, None]:
            number, rows = part
            found = gradient(state.params, rows, weights, jax.random.fold_in(step_key, number))
            return jax.tree.map(jnp.add, total, found), None

        if microbatches == 1:
            grads, sums = gradient(state.params, batch, weights, step_key)
        else:
            parts = (jnp.arange(microbatches), _split_rows(batch, microbatches))
            first = jax.tree.map(lambda leaf: leaf[0], parts[1])
            shapes = jax.eval_shape(gradient, state.params, first, weights, step_key)
            zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            (grads, sums), _ = jax.lax.scan(add_microbatch, zeros, parts)

        grads = jax.lax.with_sharding_constraint(grads, gradient_shardings)
        params, opt_state = optimizer.update(grads, state.opt_state, state.params, rate)
        metrics = means(sums, weights)
        metrics["gradient_norm"] = optax.global_norm(grads)
        metrics["parameter_norm"] = optax.global_norm(params)
        metrics["learning_rate"] = rate
        return TrainState(state.step + 1, params, opt_state), metrics

    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    program = jax.jit(
        step,
        in_shardings=(shardings, batch_sharding(mesh), None, None),
        out_shardings=(shardings, None),
        donate_argnums=0,
    )
    rate_at = jax.jit(lambda step: jnp.asarray(optimizer.schedule(step), jnp.float32))
    return TrainStep(program, rate_at, mesh, seed)


def pack_rows(task: Task, mesh: Mesh, microbatches: int, rows: Batch) -> Batch:
    """This host's rows of a batch as a training step is to have them."""
    return task.pack_rows(rows) if mesh.size == microbatches == 1 else rows


def make_evaluation_step(task: Task, *, mesh: Mesh) -> EvaluationStep:
    """The jitted evaluation: (params, global batch) → (sums, weights), without dropout."""

    @jax.jit
    def compiled(params: Any, batch: GlobalBatch) -> tuple[Sums, dict[str, jax.Array]]:
        return task.loss_sums(gathered(mesh, params), batch), task.loss_weights(batch)

    def step_on_mesh(params: Any, batch: GlobalBatch) -> tuple[Sums, dict[str, jax.Array]]:
        with on_mesh(mesh):
            return _one_at_a_time(mesh, compiled(params, batch))

    return step_on_mesh


def _one_at_a_time(mesh: Mesh, result: Result) -> Result:
    """Waits for a step where programs may not overlap; elsewhere steps are queued."""
    return result if programs_may_overlap(mesh) else jax.block_until_ready(result)


def _split_rows(batch: GlobalBatch, parts: int) -> GlobalBatch:
    """[B, …] → [parts, B / parts, …]; every part takes its rows evenly from all devices."""
    return {
        key: value.reshape(-1, parts, *value.shape[1:]).swapaxes(0, 1)
        for key, value in batch.items()
    }
