"""One step of training and one of evaluation, as pure functions under jit."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from bert_jax.sharding.mesh import programs_may_overlap
from bert_jax.sharding.rules import batch_sharding, on_mesh
from bert_jax.training.state import TrainState
from bert_jax.training.task import Sums, Task, means

Result = TypeVar("Result")
GlobalBatch = dict[str, jax.Array]
TrainStep = Callable[[TrainState, GlobalBatch], tuple[TrainState, dict[str, jax.Array]]]
EvaluationStep = Callable[[Any, GlobalBatch], tuple[Sums, dict[str, jax.Array]]]


def make_train_step(
    task: Task,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    *,
    mesh: Mesh,
    abstract: TrainState,
    microbatches: int,
    seed: int,
) -> TrainStep:
    """The jitted step: (state, global batch) → (next state, metrics); the state is donated.

    The gradient is that of the loss over the global batch: each part of the loss is divided by its
    weight in the whole batch before micro-batches are added.

    Args:
        task: loss and metrics.
        optimizer: gradient to update, clipping included.
        schedule: the learning rate, for the metrics.
        mesh: where it runs.
        abstract: shapes and shardings of the state.
        microbatches: into how many parts the batch is cut to save memory.
        seed: of the dropout.
    """

    def loss_of(
        params: Any, batch: GlobalBatch, weights: dict[str, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, Sums]:
        sums = task.sums(params, batch, key)
        return means(sums, weights)["loss"], sums

    def step(state: TrainState, batch: GlobalBatch) -> tuple[TrainState, dict[str, jax.Array]]:
        weights = task.weights(batch)
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

        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = means(sums, weights)
        metrics["gradient_norm"] = optax.global_norm(grads)
        metrics["parameter_norm"] = optax.global_norm(params)
        metrics["learning_rate"] = jnp.asarray(schedule(state.step), jnp.float32)
        return TrainState(state.step + 1, params, opt_state), metrics

    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    compiled = jax.jit(
        step,
        in_shardings=(shardings, batch_sharding(mesh)),
        out_shardings=(shardings, None),
        donate_argnums=0,
    )

    def step_on_mesh(
        state: TrainState, batch: GlobalBatch
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        with on_mesh(mesh):
            return _one_at_a_time(mesh, compiled(state, batch))

    return step_on_mesh


def make_evaluation_step(task: Task, *, mesh: Mesh) -> EvaluationStep:
    """The jitted evaluation: (params, global batch) → (sums, weights), without dropout."""
    compiled = jax.jit(lambda params, batch: (task.sums(params, batch), task.weights(batch)))

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
