"""One device and eight: the same training, for each axis of the mesh that splits the work."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.runs import assert_same_metrics, completed, records_of

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


@pytest.fixture(scope="module")
def trained(train_command, tmp_path_factory):
    """Trains on so many CPU devices; returns the run."""

    def run(devices: int, keys: dict[str, object], workdir: Path | None = None) -> Path:
        workdir = workdir or tmp_path_factory.mktemp("devices") / "run"
        done = completed(
            train_command(workdir, KEYS | keys),
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
        )
        assert done.returncode == 0, done.stderr
        return workdir

    return run


@pytest.fixture(scope="module")
def one_device(trained):
    return trained(1, {})


@pytest.fixture(scope="module")
def layouts(trained):
    """Trains each layout once."""
    runs: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in runs:
            runs[name] = trained(8, LAYOUTS[name])
        return runs[name]

    return run


def differences(run: Path, expected: Path) -> dict[str, float]:
    """The largest difference in each tensor of the exported models."""
    first, second = (load_file(path / "model" / "model.safetensors") for path in (run, expected))
    assert first.keys() == second.keys()
    return {name: float(np.abs(first[name] - second[name]).max()) for name in first}


@pytest.mark.parametrize("name", LAYOUTS)
def test_eight_devices_train_as_one(layouts, one_device, name):
    run = layouts(name)
    assert_same_metrics(run, one_device)
    assert max(differences(run, one_device).values()) < 1e-5


def test_the_compared_run_learns(one_device):
    """Losses fall, the limit binds, all parameters move, and padding is no part of a model."""
    actual = [record for record in records_of(one_device) if record["split"] == "train"]
    assert actual[-1]["loss"] < actual[0]["loss"]
    assert all(record["gradient_norm"] > KEYS["optimizer.max_grad_norm"] for record in actual)
    config = json.loads((one_device / "config.json").read_text())
    assert config["model"]["pad_vocab_to_multiple_of"] == 384
    tensors = load_file(one_device / "model" / "model.safetensors")
    assert tensors["bert.embeddings.word_embeddings.weight"].shape == (40, 32)
    assert tensors["cls.predictions.bias"].shape == (40,)
    for name, tensor in tensors.items():
        if name in WITHOUT_GRADIENT:
            assert 0 < np.abs(tensor).max() < 1e-7
        elif name.endswith("bias"):
            assert np.abs(tensor).max() > 5e-4, name  # from 0, in 20 steps of at most 1e-3


def test_a_run_goes_on_with_another_layout(trained, layouts, tmp_path):
    begun = layouts("data 8, shared moments")
    run = tmp_path / "run"
    shutil.copytree(begun, run)
    for later in (15, 20):
        shutil.rmtree(run / "checkpoints" / str(later))
    (run / "result.json").unlink()
    keys = {"optimizer.shard_over_data": False} | LAYOUTS["tensor 4, data 2"]
    trained(8, keys, run)
    assert_same_metrics(run, begun)
    assert max(differences(run, begun).values()) < 1e-5


def test_factored_moments_on_eight_devices(trained):
    """With matrices of 128 × 128 and more, whose moments have axes of 1."""
    keys = {
        "optimizer.name": "adafactor",
        "optimizer.learning_rate": 0.01,
        "model.hidden_size": 128,
        "model.intermediate_size": 256,
        "train.steps": 8,
    }
    split = LAYOUTS["fsdp 2, tensor 2, data 2"] | {"optimizer.shard_over_data": True}
    many, one = trained(8, keys | split), trained(1, keys)
    assert_same_metrics(many, one)
    # Unlike Adam's epsilon, 1e-30 does not suppress what is only rounding.
    found = differences(many, one).items()
    assert max(value for name, value in found if name not in WITHOUT_GRADIENT) < 1e-5


def test_packed_rows_on_eight_devices(trained, packed_overrides):
    split = LAYOUTS["fsdp 2, tensor 2, data 2"]
    assert_same_metrics(trained(8, packed_overrides | split), trained(1, packed_overrides))


def test_packed_rows_in_micro_batches_without_dropout(trained, packed_overrides):
    off = {"model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0}
    keys = packed_overrides | off
    assert_same_metrics(trained(8, keys), trained(1, keys | {"train.microbatches": 1}))
