"""Losses of the global batch: the same with cached gradients, and on eight devices."""

import os
import sys

import jax
import pytest

from bert_jax.config import complete_config
from bert_jax.experiment import Experiment
from tests.random_params import random_params
from tests.runs import completed
from tests.training.micro_batches import assert_same_in_micro_batches

pytestmark = pytest.mark.slow

CASES = {
    "both directions": {"data": {"directions": ("query_to_document", "document_to_query")}},
    "two encoders": {
        "document_encoder": {"separate": True},
        "data": {"projection": 12, "matryoshka": (12, 4)},
    },
    "order": {"data": {"loss": "cosent"}},
    "late interaction": {"task": "late_interaction", "data": {"expansion": "fixed"}},
}


@pytest.fixture(params=CASES)
def task(request, base_model, write_rows, make_queries):
    """30 queries in a batch of 32 rows, with dropout."""
    file = str(write_rows("train.jsonl", make_queries(30, negatives=2)))
    keys = CASES[request.param]
    config = {
        "task": "retrieval",
        "init_from": str(base_model),
        "model": {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2},
        "train": {"global_batch_size": 32},
        **keys,
        "data": {"train": file, "validation": (file,), "length": 16, "query_length": 8,
                 "negatives": 2, **keys["data"]},
    }  # fmt: skip
    return Experiment.from_config(complete_config(config, where="test")).task


def test_cached_gradients_with_dropout(task):
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    assert batch["query/input_ids"].shape == (32, 8)
    assert batch["document/input_ids"].shape[2] == 16
    params = random_params(task.module)
    assert_same_in_micro_batches(task, params, batch, devices=len(jax.devices()))


def test_on_eight_devices():
    chosen = "cached and both"
    command = (sys.executable, "-m", "pytest", "-n0", "-q", "-m", "slow", "-k", chosen, __file__)
    done = completed(command, env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"})
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(".")
