"""A model directory on disk."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.models.bert import BertForPreTraining, abstract_params
from bert_jax.models.config import BertConfig
from bert_jax.tokenization import Tokenizer


@pytest.fixture(scope="session")
def model_config(tiny_config: BertConfig) -> BertConfig:
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
def model_params(model_config: BertConfig) -> Any:
    """Random parameters, none of them 0 or 1."""
    generator = np.random.default_rng(4)
    return jax.tree.map(
        lambda leaf: generator.normal(0.1, 0.4, leaf.shape).astype(np.float32),
        abstract_params(BertForPreTraining(model_config)),
    )


@pytest.fixture
def model_path(
    tmp_path: Path, model_config: BertConfig, model_params: Any, tokenizer: Tokenizer
) -> Path:
    """The model, saved."""
    directory = tmp_path / "model"
    model_directory.save(
        directory, model_config, model_params, tokenizer, architecture="BertForPreTraining"
    )
    return directory
