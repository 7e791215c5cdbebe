"""Two hundred steps of pre-training in bfloat16 beside the same steps in float32."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.models.execution import Execution
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import abstract_state, make_train_step, new_state
from bert_jax.training_options import OptimizerOptions

pytestmark = pytest.mark.slow

STEPS = 200
OPTIONS = OptimizerOptions(learning_rate=2e-4, warmup_steps=20)


@pytest.fixture(scope="module")
def losses(make_tiny_task, tiny_config):
    """The losses of every step, from the same weights on the same batches with the same dropout."""
    config = dataclasses.replace(
        tiny_config,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    mesh = make_mesh(MeshShape(), jax.local_devices()[:1])

    def train(dtype: str) -> np.ndarray:
        task = make_tiny_task(config, Execution(dtype=dtype))
        optimizer = make_optimizer(OPTIONS, STEPS)
        abstract = abstract_state(task, optimizer, mesh)
        step = make_train_step(
            task, optimizer, mesh=mesh, abstract=abstract, microbatches=1, seed=0
        )
        state = new_state(task, optimizer, abstract, seed=1)
        actual = []
        for batch in task.train_batches(0, STEPS, host=0, hosts=1):
            state, metrics = step(state, to_global(mesh, batch))
            actual.append(jax.device_get(metrics)["loss"])
        return np.array(actual)

    return {dtype: train(dtype) for dtype in ("float32", "bfloat16")}


def test_the_losses_in_bfloat16_equal_those_in_float32_to_one_percent(losses):
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.01, atol=0)
    # They are computed differently, and the model learns.
    assert (losses["bfloat16"] != losses["float32"]).mean() > 0.9
    for each in losses.values():
        assert each[-20:].mean() < 0.8 * each[0]
