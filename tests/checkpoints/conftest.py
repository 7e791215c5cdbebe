"""A model directory on disk."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.config import EncoderConfig
from bert_jax.models.heads.pretraining import PreTrainingModel
from bert_jax.tokenization import Tokenizer
from tests.random_params import random_params


@pytest.fixture(scope="session")
def model_config(tiny_config: EncoderConfig) -> EncoderConfig:
    """The tiny model with usual dropout, three layers and an activation that is not the default."""
    return dataclasses.replace(
        tiny_config,
        num_hidden_layers=3,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.2,
        layer_norm_eps=1e-9,
    )


@pytest.fixture(scope="session")
def model_params(model_config: EncoderConfig) -> Any:
    """Random parameters, none of them 0 or 1."""
    return random_params(PreTrainingModel(model_config), seed=4, scale=0.4, all_differ=True)


@pytest.fixture(scope="session")
def description(model_config: EncoderConfig) -> ModelDescription:
    """The model with its pre-training heads."""
    return ModelDescription(model_config, "pretraining")


@pytest.fixture
def model_path(
    tmp_path: Path, description: ModelDescription, model_params: Any, tokenizer: Tokenizer
) -> Path:
    """The model, saved."""
    directory = tmp_path / "model"
    model_directory.save(directory, description, model_params, tokenizer)
    return directory
