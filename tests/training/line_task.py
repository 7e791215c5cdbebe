"""A task of five parameters, with which a step compiles in a moment."""

from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.base.task import Task

ROWS, WIDTH = 8, 4


class Line(nn.Module):
    """x [B, 4], or tokens for new parameters → x · kernel + bias [B]."""

    config: EncoderConfig = EncoderConfig()

    @nn.compact
    def __call__(self, x):
        x = getattr(x, "input_ids", x)
        return nn.Dense(1, name="classifier")(jnp.broadcast_to(x, (len(x), WIDTH)))[:, 0]


class LineTask:
    """Finds a line through points; batch n is a pure function of n, the dropout of the key.

    It has what the training needs of a task, and no more.
    """

    module = Line()
    description = SimpleNamespace(config=module.config)
    evaluator = SimpleNamespace(best_metric=("error", False))

    def train_batches(self, start, stop, *, host, hosts):
        for number in range(start, stop):
            x = np.random.default_rng(number).normal(size=(ROWS, WIDTH)).astype(np.float32)
            labels = x @ np.float32([1, -2, 3, -4]) + 5
            yield {"input_ids": x, "labels": labels, "weights": np.ones(ROWS, np.float32)}

    def pack_rows(self, rows, parts):
        return rows

    def loss_weights(self, batch):
        return {"": batch["weights"].sum()}

    def forward(self, params, batch, dropout_key=None):
        x = batch["input_ids"]
        if dropout_key is not None:
            x = x * jax.random.bernoulli(dropout_key, 0.9, x.shape)
        return self.module.apply({"params": params}, x)

    def loss(self, params, outputs, batch):
        error = outputs - batch["labels"]
        return {"": {"loss": (batch["weights"] * error**2).sum()}}

    global_loss = False
    frozen_inputs, total_loss = Task.frozen_inputs, Task.total_loss

    def summary(self, metrics):
        return {**metrics, "root": metrics.get("loss", 0.0) ** 0.5}
