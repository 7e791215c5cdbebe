"""A training beside PyTorch and transformers, from the same parameters and by the same batches."""

import pytest
import torch
import transformers

from benchmarks import peers_images
from tests.runs import records_of

pytestmark = pytest.mark.slow


def test_every_step_has_the_loss_of_transformers(experiment_of, tmp_path):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        image_size=8, patch_size=4, id2label={0: "dark", 1: "light"},
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "model")
    changes = {
        "train.global_batch_size": 5,  # the last batch of an epoch has rows of padding
        "train.epochs": 5.0,
        "train.log_every": 1,
        "train.export": "latest",
        "optimizer.learning_rate": 1e-3,
        "precision": "float32",
    }
    workdir = tmp_path / "run"
    result = experiment_of(changes, init_from=str(tmp_path / "model")).train(workdir)
    ours = [row["loss"] for row in records_of(workdir) if row["split"] == "train"]
    peer = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "model")
    losses, accuracy = peers_images.train(workdir, peer)
    assert len(losses) == 15
    assert ours == pytest.approx(losses, rel=1e-4)
    assert ours[-1] < ours[0]
    assert result["accuracy"] == accuracy
