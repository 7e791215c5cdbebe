"""Metrics over validation batches."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.data.pipeline import Batch
from bert_jax.sharding.hosts import to_global
from bert_jax.tasks.base.task import Task, means
from bert_jax.training.step import EvaluationStep


def evaluate(
    task: Task, step: EvaluationStep, params: Any, batches: Iterable[Batch], mesh: Mesh
) -> dict[str, float]:
    """Adds sums and weights over all batches, then divides once.

    So the result is the same for any batch size and number of devices, up to rounding.
    """
    total: Any = None
    for rows in batches:
        found = jax.device_get(step(params, to_global(mesh, rows)))
        found = jax.tree.map(np.float64, found)
        total = found if total is None else jax.tree.map(np.add, total, found)
    sums, weights = total
    metrics = {name: float(value) for name, value in means(sums, weights).items()}
    return task.summary(metrics)
