"""Tiny models with every head, with parameters that are drawn and not read."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.inference.model import LoadedModel
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tokenization import Tokenizer

ModelMaker = Callable[..., LoadedModel]


@pytest.fixture(scope="session")
def make_model(tiny_config: EncoderConfig, tokenizer: Tokenizer) -> ModelMaker:
    """Builds a model with a head; fields of the config can be replaced."""

    @functools.cache
    def make(head: Head, *, add_pooling_layer: bool = True, **fields: object) -> LoadedModel:
        config = dataclasses.replace(tiny_config, **{"initializer_range": 0.2, **fields})
        description = ModelDescription(config, head, add_pooling_layer=add_pooling_layer)
        module = description.make_module(Execution())
        params = jax.jit(functools.partial(init_params, module))(jax.random.key(0))
        report = LoadReport((), (), ())
        mesh = make_mesh(MeshShape(), jax.local_devices()[:1])
        return LoadedModel(config, module, params, tokenizer, description, report, mesh)

    return make


@pytest.fixture(scope="session")
def model(make_model: ModelMaker) -> LoadedModel:
    """A model with both heads of pre-training."""
    return make_model(Head.PRETRAINING)
