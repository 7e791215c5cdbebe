"""One device and eight: the same training, for each axis of the mesh that splits the work."""

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax import cli
from tests.conftest import PACKED_OVERRIDES
from tests.runs import assert_same_metrics, records_of, run_on_devices

pytestmark = pytest.mark.slow

STEPS = 20

# MLM and NSP with dropout, in two micro-batches, with a limit for the gradient that binds.
KEYS = {
    "model.num_attention_heads": 4,
    "train.steps": STEPS,
    "train.eval_every": 5,
    "train.keep_checkpoints": 4,
    "train.global_batch_size": 16,
    "train.microbatches": 2,
    "optimizer.max_grad_norm": 0.5,
}

LAYOUTS = {
    "data 8": {"mesh.data": 8},
    "data 8, shared moments": {"mesh.data": 8, "optimizer.shard_over_data": True},
    "tensor 4, data 2": {"mesh.data": 2, "mesh.tensor": 4},
    "fsdp 2, tensor 2, data 2": {"mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2},
    "auto": {"mesh": "auto"},
}

# Their true gradient is 0: a number that is added to all scores of a query changes no softmax. The
# computed gradient is rounding. Adam with a smaller epsilon would make full steps of it; BERT's
# 1e-6 suppresses it, so these tensors need no exception.
WITHOUT_GRADIENT = {f"bert.encoder.layer.{layer}.attention.self.key.bias" for layer in (0, 1)}


# What both sides of a comparison have; and where it differs, what the eight devices have alone.
ADAFACTOR = {
    "optimizer.name": "adafactor",
    "optimizer.learning_rate": 0.01,
    "model.hidden_size": 128,
    "model.intermediate_size": 256,
    "train.steps": 8,
}
WITHOUT_DROPOUT = {"model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0}
SPLIT = LAYOUTS["fsdp 2, tensor 2, data 2"]
OTHERS = {
    "factored moments": ADAFACTOR | SPLIT | {"optimizer.shard_over_data": True},
    "packed": PACKED_OVERRIDES | SPLIT,
    "packed, without dropout": PACKED_OVERRIDES | WITHOUT_DROPOUT,
}
ON_ONE = {
    "plain": {},
    "factored moments": ADAFACTOR,
    "packed": PACKED_OVERRIDES,
    "packed, without dropout": PACKED_OVERRIDES | WITHOUT_DROPOUT | {"train.microbatches": 1},
}


@pytest.fixture(scope="module")
def on_eight(train_command, tmp_path_factory):
    """Trains on eight devices, run after run in one process."""

    def train(keys: dict[str, dict[str, object]]) -> dict[str, Path]:
        runs = {name: tmp_path_factory.mktemp("eight") / "run" for name in keys}
        run_on_devices(8, *(train_command(runs[name], KEYS | keys[name]) for name in keys))
        return runs

    return train


@pytest.fixture(scope="module")
def layouts(on_eight) -> dict[str, Path]:
    return on_eight(LAYOUTS)


@pytest.fixture(scope="module")
def others(on_eight) -> dict[str, Path]:
    return on_eight(OTHERS)


@pytest.fixture(scope="module")
def on_one(train_command, tmp_path_factory):
    """Trains on the device of this process, once for each name."""

    @functools.cache
    def train(name: str) -> Path:
        workdir = tmp_path_factory.mktemp("one") / "run"
        assert cli.main(train_command(workdir, KEYS | ON_ONE[name])[3:]) == 0
        return workdir

    return train


def differences(run: Path, expected: Path) -> dict[str, float]:
    """The largest difference in each tensor of the exported models."""
    first, second = (load_file(path / "model" / "model.safetensors") for path in (run, expected))
    assert first.keys() == second.keys()
    return {name: float(np.abs(first[name] - second[name]).max()) for name in first}


@pytest.mark.parametrize("name", LAYOUTS)
def test_eight_devices_train_as_one(layouts, on_one, name):
    assert_same_metrics(layouts[name], on_one("plain"))
    assert max(differences(layouts[name], on_one("plain")).values()) < 1e-5


def test_the_compared_run_learns(on_one):
    """Losses fall, the limit binds, all parameters move, and padding is no part of a model."""
    run = on_one("plain")
    actual = [record for record in records_of(run) if record["split"] == "train"]
    assert actual[-1]["loss"] < actual[0]["loss"]
    assert all(record["gradient_norm"] > KEYS["optimizer.max_grad_norm"] for record in actual)
    config = json.loads((run / "config.json").read_text())
    assert config["model"]["pad_vocab_to_multiple_of"] == 384
    tensors = load_file(run / "model" / "model.safetensors")
    assert tensors["bert.embeddings.word_embeddings.weight"].shape == (40, 32)
    assert tensors["cls.predictions.bias"].shape == (40,)
    for name, tensor in tensors.items():
        if name in WITHOUT_GRADIENT:
            assert 0 < np.abs(tensor).max() < 1e-7
        elif name.endswith("bias"):
            assert np.abs(tensor).max() > 5e-4, name  # from 0, in 20 steps of at most 1e-3


def test_a_run_goes_on_with_another_layout(train_command, layouts, tmp_path):
    begun = layouts["data 8, shared moments"]
    run = tmp_path / "run"
    shutil.copytree(begun, run)
    for later in (15, 20):
        shutil.rmtree(run / "checkpoints" / str(later))
    (run / "result.json").unlink()
    keys = {"optimizer.shard_over_data": False} | LAYOUTS["tensor 4, data 2"]
    run_on_devices(8, train_command(run, KEYS | keys))
    assert_same_metrics(run, begun)
    assert max(differences(run, begun).values()) < 1e-5


def test_factored_moments_on_eight_devices(others, on_one):
    """With matrices of 128 × 128 and more, whose moments have axes of 1."""
    many, one = others["factored moments"], on_one("factored moments")
    assert_same_metrics(many, one)
    # Unlike Adam's epsilon, 1e-30 does not suppress what is only rounding.
    found = differences(many, one).items()
    assert max(value for name, value in found if name not in WITHOUT_GRADIENT) < 1e-5


@pytest.mark.parametrize("name", ["packed", "packed, without dropout"])
def test_packed_rows_on_eight_devices(others, on_one, name):
    """The second in micro-batches on eight devices alone."""
    assert_same_metrics(others[name], on_one(name))
