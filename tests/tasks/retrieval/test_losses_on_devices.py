"""Every loss of search on one device and on eight: the same step.

For multiple negatives and micro-batches see `test_global_batch.py`, for sparse vectors
`test_sparse.py`.
"""

import os
import random
import sys
from pathlib import Path

import pytest

from bert_jax.config import complete_config
from bert_jax.experiment import Experiment
from tests.random_params import random_params
from tests.runs import completed
from tests.training.micro_batches import assert_same_in_micro_batches

pytestmark = pytest.mark.slow

DEVICES = 8
DOT = {"similarity": "dot", "normalize": False}
# The task, and keys of section `data`.
CASES = {
    "triplet": ("retrieval", {"loss": "triplet", "similarity": "euclidean"}),
    "margin": ("retrieval", {"loss": "margin_mse", **DOT}),
    "distribution": ("retrieval", {"loss": "kl_divergence", **DOT}),
    "contrastive": ("retrieval", {"loss": "contrastive"}),
    "order": ("retrieval", {"loss": "cosent"}),
    "two views": ("retrieval", {"format": "text"}),
    "each document": ("ranking", {"loss": "binary_cross_entropy"}),
    "one of several": ("ranking", {"loss": "cross_entropy"}),
    "a list": ("ranking", {"loss": "lambda_loss"}),
    "late interaction": ("late_interaction", {"loss": "margin_mse", "expansion": "fixed"}),
    "late distribution": ("late_interaction", {"loss": "kl_divergence"}),
}
# A loss sees vectors or scores: the dropout before them is the same for all losses of a task, and
# takes a third of the compilation. Two views differ by it.
DROPOUT = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
WITH_DROPOUT = ("two views", "one of several", "late interaction")
# The rows of the batch, else 32: over 32 lists the gradients nearly cancel, and the rounding of
# what remains is at the tolerance.
ROWS = {"a list": 16}
# They compile two programs each: together in one process, which has the devices.
on_eight_devices = pytest.mark.skipif(
    os.environ.get("JAX_NUM_CPU_DEVICES") != str(DEVICES), reason="test_on_eight_devices runs it"
)


@pytest.fixture
def files(write_rows, make_queries, tmp_path) -> dict[bool, Path]:
    """30 queries with a teacher's scores; and the same queries as texts alone."""
    draw = random.Random(2)
    rows = [
        row | {"scores": [draw.gauss(0, 3) for _ in range(3)]}
        for row in make_queries(30, negatives=2)
    ]
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"{row['query']} {number}\n" for number, row in enumerate(rows)))
    return {False: write_rows("train.jsonl", rows), True: texts}


@on_eight_devices
@pytest.mark.parametrize("name", CASES)
def test_the_same_loss_and_gradient(base_model, files, name):
    task_name, data = CASES[name]
    file = str(files[data.get("format") == "text"])
    lengths = {} if task_name == "ranking" else {"query_length": 8}
    validation = {"validation": (str(files[False]),)}
    config = {
        "task": task_name,
        "init_from": str(base_model),
        "model": DROPOUT if name in WITH_DROPOUT else {},
        "train": {"global_batch_size": ROWS.get(name, 32)},
        "data": {"train": file, "length": 16, "negatives": 2, **validation, **lengths, **data},
    }
    task = Experiment.from_config(complete_config(config, where="test")).task
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    params = random_params(task.module)
    assert_same_in_micro_batches(task, params, batch, devices=DEVICES, parts=(1,))


def test_on_eight_devices():
    options = "-n0", "-q", "-m", "slow", "-k", "gradient"
    done = completed(
        (sys.executable, "-m", "pytest", *options, __file__),
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(DEVICES)},
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("." * len(CASES))
