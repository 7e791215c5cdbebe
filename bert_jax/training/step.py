"""The training state, and one training step as a pure function under jit."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from bert_jax.data.pipeline import Batch
from bert_jax.errors import OptionError
from bert_jax.models.encoder import abstract_params, init_params
from bert_jax.models.parameter_sharding import gathered, sharded_shapes, state_shardings
from bert_jax.sharding.mesh import (
    batch_parts,
    explain_out_of_memory,
    lack_of_memory,
    programs_may_overlap,
    reported_memory,
)
from bert_jax.sharding.rules import batch_sharding, on_mesh
from bert_jax.tasks.base.task import Sums, Task, means
from bert_jax.training.optimizer import Optimizer
from bert_jax.training_options import TrainOptions

GlobalBatch = dict[str, jax.Array]

# [CLS], a piece of a word and [SEP].
_FEWEST_TOKENS = 3


class TrainState(flax.struct.PyTreeNode):
    """The inputs and outputs of a step, after `step` steps.

    Attributes:
        step: int32 scalar, steps done; also the position in the data and the seed of the dropout.
        params: float32 parameters.
        opt_state: moments of the optimizer.
    """

    step: jax.Array
    params: Any
    opt_state: Any


def abstract_state(task: Task, optimizer: Optimizer, mesh: Mesh) -> TrainState:
    """Shapes, dtypes and shardings of the state, without computing it.

    Raises:
        UserError: the optimizer's options do not fit the model, or the model does not fit the mesh.
    """
    shapes = jax.eval_shape(
        lambda params: _initial_state(params, optimizer), abstract_params(task.module)
    )
    moments = sharded_shapes(mesh, shapes.opt_state, optimizer.mesh_axes, has_means=True)
    return sharded_shapes(mesh, shapes.replace(opt_state=None)).replace(opt_state=moments)


def new_state(
    task: Task, optimizer: Optimizer, abstract: TrainState, *, seed: int, params: Any = None
) -> TrainState:
    """A new state, each part computed on the devices that hold it.

    Args:
        task: the task, whose module initialises the parameters.
        optimizer: initialises its moments.
        abstract: the state with its sharding, see `abstract_state`.
        seed: seed of the parameters.
        params: parameters instead of random ones.

    Raises:
        OptionError: the devices have too little memory for it.
    """
    _check_state(abstract)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)

    @functools.partial(jax.jit, out_shardings=shardings)
    def make(seed: Any) -> TrainState:
        return _initial_state(init_params(task.module, jax.random.key(seed)), optimizer)

    @functools.partial(jax.jit, out_shardings=shardings.replace(params=None))
    def make_others(params: Any) -> TrainState:
        return _initial_state(params, optimizer).replace(params=None)

    if params is None:
        return make(np.uint32(seed))
    placed = jax.device_put(params, shardings.params)
    return make_others(placed).replace(params=placed)


def check_memory(task: Task, abstract: TrainState, options: TrainOptions, mesh: Mesh) -> None:
    """Refuses a training that can never fit: its state, or the shortest rows of its batch.

    A step needs much more; `bert-jax plan` estimates it.

    Args:
        task: the task, which may have `frozen_inputs`.
        abstract: the state with its sharding, see `abstract_state`.
        options: batch size and micro-batches.
        mesh: devices of the training.

    Raises:
        OptionError: a device has less memory than that.
    """
    _check_state(abstract, task.frozen_inputs.abstract_params(mesh))
    # Three int32 arrays of the batch, and hidden states of a micro-batch in bfloat16.
    bytes_per_token = 12 + 2 * task.description.config.hidden_size / options.microbatches
    rows = options.global_batch_size / batch_parts(mesh)
    needed = rows * _FEWEST_TOKENS * bytes_per_token
    available = reported_memory(list(mesh.devices.flat))
    if available is not None and needed > available:
        raise OptionError(
            "train.global_batch_size",
            options.global_batch_size,
            "lower {train.global_batch_size}",
            problem=f"a batch of {options.global_batch_size:,} rows needs more than "
            f"{needed / 2**30:,.1f} GiB of each device, which has {available / 2**30:,.1f} GiB",
        )


def _check_state(abstract: TrainState, frozen_params: Any = None) -> None:
    teachers = "" if frozen_params is None else ", the teacher's parameters"
    what = f"the parameters{teachers} and the moments of the optimizer"
    if problem := lack_of_memory((abstract, frozen_params), what):
        rule = "make the model smaller ({model.size}, or width and layers), or set {mesh.fsdp}"
        raise OptionError("mesh.fsdp", None, rule, problem)


def _initial_state(params: Any, optimizer: Optimizer) -> TrainState:
    return TrainState(jnp.int32(0), params, optimizer.init(params))


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """A compiled step: (state, global batch) → (next state, metrics); the state is donated.

    Attributes:
        program: the jitted function of state, frozen_params, batch, dropout seed and learning rate.
        rate_at: learning rate of a step.
        mesh: devices of the step.
        seed: seed of the dropout.
        frozen_params: parameters of `Task.frozen_inputs`; or their shapes, to `trace` the program
            only.
    """

    program: jax.stages.Wrapped
    rate_at: Callable[[jax.Array], jax.Array]
    mesh: Mesh
    seed: int
    frozen_params: Any

    def __call__(
        self, state: TrainState, batch: GlobalBatch
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Runs a step; returns before it is finished, except where programs must not overlap."""
        rate = self.rate_at(state.step)
        with on_mesh(self.mesh):
            result = self.program(state, self.frozen_params, batch, np.uint32(self.seed), rate)
            return result if programs_may_overlap(self.mesh) else jax.block_until_ready(result)

    def trace(
        self, state: TrainState, batch: Mapping[str, jax.ShapeDtypeStruct]
    ) -> jax.stages.Traced:
        """The program of a step for these shapes, to inspect or compile; nothing is computed."""
        seed, rate = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.uint32, jnp.float32))
        with on_mesh(self.mesh):
            return self.program.trace(state, self.frozen_params, dict(batch), seed, rate)


def make_train_step(
    task: Task,
    optimizer: Optimizer,
    *,
    mesh: Mesh,
    abstract: TrainState,
    microbatches: int,
    seed: int,
    frozen_params: Any = None,
) -> TrainStep:
    """The jitted step of a training.

    The gradient is of the loss over the global batch: each part of the loss is divided by its
    weight in the global batch before micro-batches are added. A loss that compares all rows is
    computed from the outputs of all micro-batches together, see `Task.global_loss`.

    There is one program per batch shape. Seed and learning rate are its arguments, so that runs
    that differ only in these find it in the compilation cache.

    Args:
        task: task with loss and metrics.
        optimizer: optimizer, including gradient clipping.
        mesh: devices of the step.
        abstract: shapes and shardings of the state.
        microbatches: number of equal parts of the batch, computed one after the other to save
            memory.
        seed: seed of the dropout.
        frozen_params: `task.frozen_inputs.load(mesh)`; None: their shapes, for a step that is only
            traced.
    """
    if frozen_params is None:
        frozen_params = task.frozen_inputs.abstract_params(mesh)
    # Gradients are sharded like the moments: a device that updates a part of the parameters needs
    # the sum over all devices for this part only.
    gradient_shardings = state_shardings(mesh, abstract.params, optimizer.mesh_axes)
    is_cached = task.global_loss and microbatches > 1

    def step(
        state: TrainState, frozen_params: Any, batch: GlobalBatch, seed: jax.Array, rate: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        weights = task.loss_weights(batch)

        def loss_of(params: Any, rows: GlobalBatch, key: jax.Array) -> tuple[jax.Array, Sums]:
            params = gathered(mesh, optimizer.stop_frozen_gradients(params))
            fixed = gathered(mesh, frozen_params)

            def forward(rows: GlobalBatch) -> Any:
                return task.forward(
                    params, rows | task.frozen_inputs.outputs(fixed, rows), dropout_key=key
                )

            outputs = _cached(forward, rows, microbatches) if is_cached else forward(rows)
            sums = task.loss(params, outputs, rows)
            return means(sums, weights, task.total_loss)["loss"], sums

        gradient = functools.partial(jax.grad(loss_of, has_aux=True), state.params)
        parts = 1 if is_cached else microbatches
        key = jax.random.fold_in(jax.random.key(seed), state.step)
        grads, sums = _accumulated(gradient, batch, key, parts)
        grads = jax.lax.with_sharding_constraint(grads, gradient_shardings)
        params, opt_state = optimizer.update(grads, state.opt_state, state.params, rate)
        metrics = means(sums, weights, task.total_loss)
        metrics["gradient_norm"] = optax.global_norm(grads)
        metrics["parameter_norm"] = optax.global_norm(params)
        metrics["learning_rate"] = rate
        return TrainState(state.step + 1, params, opt_state), metrics

    shardings = jax.tree.map(lambda leaf: leaf.sharding, (abstract, frozen_params))
    program = jax.jit(
        step,
        in_shardings=(*shardings, batch_sharding(mesh), None, None),
        out_shardings=(shardings[0], None),
        donate_argnums=0,
    )
    rate_at = jax.jit(lambda step: jnp.asarray(optimizer.schedule(step), jnp.float32))
    return TrainStep(program, rate_at, mesh, seed, frozen_params)


def _cached(forward: Callable[[GlobalBatch], Any], batch: GlobalBatch, parts: int) -> Any:
    """The outputs for a batch, computed for equal parts of it one after the other.

    They are computed again when their gradient is known, so that only the activations of one part
    are in memory (GradCache: Gao et al., 2021, https://arxiv.org/abs/2101.06983). Row indices
    count within the whole batch, so the encoder's dropout masks are the same as without parts; a
    head's are repeated in each part.
    """
    (size,) = {len(array) for name, array in batch.items() if not name.endswith("pack_indices")}
    rows = batch | {"row_indices": jnp.arange(size)}
    outputs = jax.lax.map(jax.checkpoint(forward, prevent_cse=False), _split_rows(rows, parts))
    return jax.tree.map(lambda each: each.swapaxes(0, 1).reshape(-1, *each.shape[2:]), outputs)


def _accumulated(
    gradient: Callable[[GlobalBatch, jax.Array], Any],
    batch: GlobalBatch,
    key: jax.Array,
    microbatches: int,
) -> Any:
    """Gradient accumulation: the sum over micro-batches, computed one after the other.

    Args:
        gradient: rows and key of the dropout → gradient of the loss, and sums.
        batch: the rows.
        key: each micro-batch has a key made of it.
        microbatches: number of equal parts.
    """
    if microbatches == 1:
        return gradient(batch, key)

    def add(total: Any, part: tuple[jax.Array, GlobalBatch]) -> tuple[Any, None]:
        number, rows = part
        return jax.tree.map(jnp.add, total, gradient(rows, jax.random.fold_in(key, number))), None

    parts = _split_rows(batch, microbatches)
    shapes = jax.eval_shape(gradient, jax.tree.map(lambda leaf: leaf[0], parts), key)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.scan(add, zeros, (jnp.arange(microbatches), parts))[0]


def _split_rows(batch: GlobalBatch, parts: int) -> GlobalBatch:
    """[B, …] → [parts, B / parts, …]; part p has the rows p, p + parts …, of every device."""
    return {
        key: value.reshape(-1, parts, *value.shape[1:]).swapaxes(0, 1)
        for key, value in batch.items()
    }


def pack_rows(task: Task, mesh: Mesh, microbatches: int, rows: Batch) -> Batch:
    """This host's rows of a batch, packed if there is a single device."""
    return task.pack_rows(rows, microbatches) if mesh.size == 1 else rows


def explain_step_out_of_memory(
    options: TrainOptions, mesh: Mesh
) -> contextlib.AbstractContextManager[None]:
    """Adds to an error of lacking memory how to make a training step smaller."""
    rows = options.global_batch_size // options.microbatches
    parts = batch_parts(mesh)
    return explain_out_of_memory(
        f"{rows // parts} rows at a time (global batch of {options.global_batch_size}, "
        f"{options.microbatches} micro-batches, {parts} parts of the batch)",
        "model.remat",
        "set {model.remat=full}, split the state by {mesh.fsdp}, or start a new run with more "
        "{train.microbatches}; `bert-jax plan` shows what fits",
    )
