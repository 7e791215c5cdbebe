"""A small model of images and folders to train it on."""

import pytest

from bert_jax.config import load_config, set_keys
from bert_jax.experiment import Experiment
from tests.image_files import write_images

SMALL = {
    "model.family": "vit",
    "model.image_size": 8,
    "model.patch_size": 4,
    "model.hidden_size": 16,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 16,
    "train.global_batch_size": 4,
    "train.epochs": 2.0,
    "optimizer.learning_rate": 1e-2,
    "precision": "float32",
}


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """photos/train and photos/validation, with six dark and six light images each."""
    folder = tmp_path_factory.mktemp("images") / "photos"
    return write_images(folder, splits=("train", "validation"))


@pytest.fixture(scope="session")
def experiment_of(photos):
    """(changes of keys, init_from) → the experiment of a small model."""

    def make(changes=None, init_from=""):
        config = load_config(f"image_classification:directory={photos},init_from={init_from}")
        own = {} if init_from else SMALL
        set_keys(config, own | (changes or {}), where="test")
        return Experiment.from_config(config)

    return make


@pytest.fixture(scope="session")
def run(experiment_of, tmp_path_factory):
    """The directory of a training of two epochs, of six steps."""
    workdir = tmp_path_factory.mktemp("runs") / "photos"
    experiment_of().train(workdir)
    return workdir
