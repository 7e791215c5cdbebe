"""A tiny pre-training without data, and plans of it."""

import functools
from collections.abc import Callable

import pytest
from ml_collections import ConfigDict

from bert_jax.config import Sections, default_config, set_keys
from bert_jax.planning.hardware import find_topology, parse_slice
from bert_jax.planning.training_on_mesh import Training, TrainingOnMesh
from bert_jax.sharding.mesh import MeshShape
from bert_jax.training.optimizer import make_optimizer

# Two layers; no two of its sizes are the same.
TINY = {
    "precision": "float32",
    "model.vocab_size": 96,
    "model.pad_vocab_to_multiple_of": 96,
    "model.hidden_size": 32,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 4,
    "model.intermediate_size": 64,
    "model.max_position_embeddings": 24,
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
    "data.length": 16,
    "data.max_predictions": 3,
    "train.global_batch_size": 8,
    "train.steps": 100,
    "optimizer.warmup_ratio": 0.0,
}


@pytest.fixture(scope="session")
def tiny_overrides() -> Callable[..., list[str]]:
    """`TINY` and other keys as overrides on the command line."""

    def make(**keys: object) -> list[str]:
        source = TINY | {name.replace("__", "."): value for name, value in keys.items()}
        return [f"--config.{key}={value}" for key, value in source.items()]

    return make


@pytest.fixture(scope="session")
def tiny_config() -> Callable[..., ConfigDict]:
    """Builds the config, with `section__key=value` instead of `TINY`'s."""

    def make(**keys: object) -> ConfigDict:
        config = default_config(str(keys.pop("task", "pretraining")))
        changes = {key.replace("__", "."): value for key, value in keys.items()}
        return set_keys(config, TINY | changes, where="test")

    return make


@pytest.fixture(scope="session")
def training_of(tiny_config) -> Callable[..., Training]:
    """The tiny training on a platform, each once."""

    @functools.cache
    def make(platform: str, **keys: object) -> Training:
        config = Sections.read(tiny_config(**keys))
        return Training(
            config.spec.create_without_data(config.task, config.model_init(platform)),
            make_optimizer(config.optimizer, config.train.steps),
            config.train,
        )

    return make


@pytest.fixture(scope="session")
def lay_out(training_of) -> Callable[..., TrainingOnMesh]:
    """Lays the tiny training out on a mesh of a topology, each once."""

    @functools.cache
    def make(topology: str, shape: MeshShape, **keys: object) -> TrainingOnMesh:
        result = find_topology(parse_slice(topology))
        return TrainingOnMesh(
            training_of(result.slice.hardware.platform, **keys), shape, result.devices
        )

    return make
