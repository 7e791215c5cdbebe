"""Losses that compare all pairs of a batch, in micro-batches: the same as in one batch."""

import os
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config import complete_config
from bert_jax.experiment import Experiment
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder_with_head import row_kinds
from bert_jax.models.heads.multiple_choice import MultipleChoiceModel
from bert_jax.tasks.base.task import Task
from tests.random_params import random_params
from tests.runs import completed
from tests.training.line_task import LineTask
from tests.training.micro_batches import assert_same_in_micro_batches

NOUNS, VERBS = ("cat", "dog", "bird", "boy", "sea", "sun", "mat", "tree"), ("sat", "ran")
PAIRS = [
    (f"the {noun} {verb} {place} .", f"a {noun} was {place}")
    for noun in NOUNS
    for verb in VERBS
    for place in ("up", "down on the mat")
]
# The teacher is the initial model: without dropout, which the student has.
DISTILLATION = {"hidden_weight": 2.0, "attention_weight": 1.0}


@pytest.fixture(params=["alone", pytest.param("distilled", marks=pytest.mark.slow)])
def task(request, base_model, tmp_path):
    table = tmp_path / "train.tsv"
    table.write_text("".join("\t".join(row) + "\n" for row in [("text", "pair"), *PAIRS]))
    config = {
        "task": "similarity",
        "init_from": str(base_model),
        "model": {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2},
        "data": {"train": str(table), "validation": (str(table),), "length": 16,
                 "text_column": "text", "pair_column": "pair", "loss": "in_batch_negatives"},
        "train": {"global_batch_size": 32},
        "distillation": {"teacher": str(base_model), **DISTILLATION}
                        if request.param == "distilled" else {},
    }  # fmt: skip
    return Experiment.from_config(complete_config(config, where="test")).task


class DualEncoder(nn.Module):
    """Vectors of queries, [B, 8], and of three passages each, [B, 3, 8]."""

    config: EncoderConfig = EncoderConfig()

    @nn.compact
    def __call__(self, query):
        query = getattr(query, "input_ids", query)  # tokens for new parameters
        passages = query[:, None] * jnp.float32([[1], [2], [-1]])
        return nn.Dense(8, name="classifier")(query), nn.Dense(8, name="relevance")(passages)


class HardNegatives(LineTask):
    """Scores the first of each query's passages against all passages of the batch."""

    module, global_loss = DualEncoder(), True

    def forward(self, params, batch, dropout_key=None):
        return self.module.apply({"params": params}, batch["query"])

    def loss(self, params, outputs, batch):
        queries, passages = outputs
        scores = queries @ passages.reshape(-1, passages.shape[-1]).T  # [B, 3 B]
        # A temperature that is learned: the loss has a parameter beside the vectors.
        scores *= jnp.exp(params["classifier"]["bias"][0])
        numbers = jnp.arange(len(queries)) * passages.shape[1]
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, numbers)
        return {"": {"loss": (batch["weights"] * losses).sum()}}


@pytest.mark.slow
def test_queries_with_hard_negatives():
    query = np.random.default_rng(0).normal(size=(16, 1)).astype(np.float32)
    batch = {"query": query, "weights": np.ones(16, np.float32)}
    task = HardNegatives()
    assert_same_in_micro_batches(task, random_params(task.module), batch, devices=1)


class GlobalChoices(LineTask):
    """Scores the first choice of each row against all choices of the batch, by a model's head."""

    global_loss, inputs, forward = True, Task.inputs, Task.forward
    module = MultipleChoiceModel(
        EncoderConfig(
            vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=8, hidden_dropout_prob=0.3, classifier_dropout=0.0,
        )
    )  # fmt: skip

    def loss(self, params, outputs, batch):
        first = jnp.arange(len(outputs)) * outputs.shape[1]
        scores = jnp.broadcast_to(outputs.reshape(-1), (len(outputs), outputs.size))
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, first)
        return {"": {"loss": (batch["weights"] * losses).sum()}}


@pytest.mark.slow
def test_a_head_with_dropout_in_its_encoder():
    ids = np.random.default_rng(0).integers(1, 50, (16, 3, 4)).astype(np.int32)
    task = GlobalChoices()
    batch = {"input_ids": ids, "weights": np.ones(16, np.float32)}
    assert_same_in_micro_batches(task, random_params(task.module), batch, devices=1)


def test_each_kind_of_rows_has_the_row_indices():
    batch = {"query/input_ids": 1, "passage/input_ids": 2, "weights": 3, "row_indices": 4}
    assert row_kinds(batch) == {
        "query": {"input_ids": 1, "row_indices": 4},
        "passage": {"input_ids": 2, "row_indices": 4},
    }


@pytest.mark.slow
def test_pairs_of_texts_with_dropout(task):
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    batch["weights"][-1] = 0
    params = random_params(task.module)
    assert_same_in_micro_batches(task, params, batch, devices=len(jax.devices()))


@pytest.mark.slow
def test_on_eight_devices():
    command = (sys.executable, "-m", "pytest", "-n0", "-q", "-m", "", "-k", "not eight", __file__)
    done = completed(command, env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"})
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("...")
