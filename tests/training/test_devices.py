"""One device and eight: the same losses, whatever axis of the mesh splits the work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def losses(train_command, tmp_path_factory):
    """Trains 20 steps with dropout on so many CPU devices; returns the records of each split."""

    def run(devices: int, **overrides) -> dict[str, list[dict[str, float]]]:
        workdir: Path = tmp_path_factory.mktemp("devices") / "run"
        keys = {"train.steps": 20, "train.eval_every": 5, "train.global_batch_size": 16}
        done = subprocess.run(
            train_command(workdir, keys | overrides),
            env=os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        records = [json.loads(x) for x in (workdir / "metrics.jsonl").read_text().splitlines()]
        return {s: [r for r in records if r["split"] == s] for s in ("train", "held_out")}

    return run


@pytest.fixture(scope="module")
def one_device(losses):
    return losses(1)


def assert_same(found, expected) -> None:
    for split, names in {
        "train": ("loss", "mlm_loss", "nsp_loss", "gradient_norm", "learning_rate"),
        "held_out": ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"),
    }.items():
        assert len(found[split]) == len(expected[split]) == {"train": 20, "held_out": 4}[split]
        for one, other in zip(found[split], expected[split], strict=True):
            assert one["step"] == other["step"]
            for name in names:
                # The gradient's norm is a sum of many more terms than a loss.
                tolerance = 1e-4 if name == "gradient_norm" else 1e-5
                assert one[name] == pytest.approx(other[name], rel=tolerance), (one["step"], name)


def test_eight_devices_give_the_losses_of_one(losses, one_device):
    assert_same(losses(8), one_device)
    assert one_device["train"][-1]["loss"] < one_device["train"][0]["loss"]


@pytest.mark.parametrize(
    "mesh",
    [
        {"mesh.data": 2, "mesh.fsdp": 2, "mesh.tensor": 2},
        {"mesh.data": 1, "mesh.fsdp": 8},
        {"mesh": "auto"},
    ],
)
def test_split_parameters_give_the_losses_of_one(losses, one_device, mesh):
    assert_same(losses(8, **mesh), one_device)


def test_micro_batches_on_eight_devices_without_dropout(losses):
    off = {"model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0}
    assert_same(losses(8, **off, **{"train.microbatches": 2}), losses(1, **off))


def test_a_run_is_evaluated_on_any_number_of_devices(train_command, tmp_path):
    workdir = tmp_path / "run"
    subprocess.run(
        train_command(workdir, {"train.steps": 2, "optimizer.warmup_steps": 1}),
        check=True,
        capture_output=True,
    )
    found = []
    for devices in (1, 4):
        done = subprocess.run(
            [sys.executable, "-m", "bert_jax", "evaluate", "--workdir", str(workdir)],
            env=os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert found[0] == pytest.approx(json.loads((workdir / "result.json").read_text()), rel=1e-5)
