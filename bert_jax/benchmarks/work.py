"""What is timed: a training step, the encoder forward, the making of batches."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.data.pipeline import Batch
from bert_jax.models.bert import Bert
from bert_jax.models.config import Execution
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.step import abstract_state, make_train_step, new_state

# Batches that are placed on the devices before the clock starts, and then used in turn.
_BATCHES = 4

Step = Callable[[int], Any]


def first_batches(task: Task, count: int = _BATCHES) -> list[Batch]:
    """The first batches of a training."""
    made = task.train_batches(0, count, host=0, hosts=1)
    try:
        return list(itertools.islice(made, count))
    finally:
        made.close()


def training_step(
    task: Task, optimizer: Optimizer, options: TrainOptions, mesh: Mesh, batches: list[Batch]
) -> Step:
    """The very step of the training loop, on batches that lie on the devices."""
    abstract = abstract_state(task, optimizer, mesh)
    state = new_state(task, optimizer, abstract, seed=0)
    step = make_train_step(
        task, optimizer, mesh=mesh, abstract=abstract, microbatches=options.microbatches, seed=0
    )
    placed = [to_global(mesh, batch) for batch in batches]

    def run(number: int) -> Any:
        nonlocal state  # the step before has taken its memory
        state, metrics = step(state, placed[number % len(placed)])
        return metrics

    return run


def forward_pass(task: Task, execution: Execution, mesh: Mesh, batches: list[Batch]) -> Step:
    """The encoder without dropout: token ids to hidden states, as `embed` computes them."""
    encoder = Bert(task.description.config, execution, add_pooling_layer=False)
    placed = [to_global(mesh, _inputs(batch)) for batch in batches]
    with on_mesh(mesh):
        params = jax.jit(encoder.init)(jax.random.key(0), **placed[0])

    @jax.jit
    def forward(params: Any, batch: Any) -> jax.Array:
        output: Any = encoder.apply(params, **batch)
        return output.last_hidden_state

    def run(number: int) -> jax.Array:
        with on_mesh(mesh):
            return forward(params, placed[number % len(placed)])

    return run


def batch_making(task: Task) -> tuple[Step, list[Batch]]:
    """The input pipeline: what it makes, one after the other; the list gets all of it."""
    made: list[Batch] = []
    stream: Iterator[Batch] = task.train_batches(0, 1 << 40, host=0, hosts=1)

    def run(number: int) -> None:
        made.append(next(stream))

    return run, made


def row_lengths(batch: Batch) -> np.ndarray:
    """The tokens of each text of a batch that sees no other, int64 [n], without padding."""
    if "segment_ids" in batch:
        ids = batch["segment_ids"]  # BT
        numbers = ids + (ids.max() + 1) * np.arange(len(ids))[:, None]
        counts = np.bincount(numbers[ids > 0])
        return counts[counts > 0]
    mask = batch["attention_mask"]
    return mask.reshape(math.prod(mask.shape[:-1]), -1).sum(axis=1)


def _inputs(batch: Batch) -> Batch:
    """What the encoder takes of a batch, rows of several texts as rows."""
    names = ("input_ids", "token_type_ids", "attention_mask", "segment_ids", "position_ids")
    return {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in names if name in batch}
