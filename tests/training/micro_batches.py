"""A training step in micro-batches, beside the same step in one piece on one device."""

import jax
import numpy as np
import pytest

from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import abstract_state, make_train_step, new_state, pack_rows
from bert_jax.training_options import OptimizerOptions

# Without a limit for the gradient, and with all of it in the first moment.
OPTIONS = OptimizerOptions(learning_rate=0.1, max_grad_norm=0.0, beta1=0.0)


def assert_same_in_micro_batches(task, params, batch, devices, parts=(1, 2, 4)):
    """Compares losses and gradients of some micro-batches with one batch on one device.

    The one batch is not packed; the others are, where the task can and there is one device.
    """
    optimizer = make_optimizer(OPTIONS, 10)

    def losses_and_gradient(microbatches, devices, *, packs):
        shape = MeshShape() if devices == 1 else MeshShape(data=4, fsdp=2)
        mesh = make_mesh(shape, jax.devices()[:devices])
        abstract = abstract_state(task, optimizer, mesh)
        step = make_train_step(
            task, optimizer, mesh=mesh, abstract=abstract, microbatches=microbatches, seed=0,
            frozen_params=task.frozen_inputs.load(mesh),
        )  # fmt: skip
        state = new_state(task, optimizer, abstract, seed=0, params=params)
        rows = pack_rows(task, mesh, microbatches, batch) if packs else batch
        state, metrics = step(state, to_global(mesh, rows))
        moments = jax.tree.leaves(jax.device_get(state.opt_state[0].mu))
        names = [name for name in metrics if name.endswith("loss") or name == "gradient_norm"]
        gradient = np.concatenate([leaf.ravel() for leaf in moments])
        return {name: float(metrics[name]) for name in names}, gradient

    metrics, gradient = losses_and_gradient(1, 1, packs=False)
    assert metrics["gradient_norm"] > 0.1
    for microbatches in parts:
        actual, gradient_of_parts = losses_and_gradient(microbatches, devices, packs=True)
        assert actual == pytest.approx(metrics, rel=1e-5)
        assert np.abs(gradient_of_parts - gradient).max() < 1e-5 * np.abs(gradient).max()
