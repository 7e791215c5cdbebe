"""The recipe "add a head": one module, and its class in the families that have it."""

import dataclasses

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import heads_in
from bert_jax.families import bert
from bert_jax.families.family import Rule
from bert_jax.inference.loading import load
from bert_jax.models import heads
from bert_jax.models.execution import Execution
from bert_jax.models.head import find_head
from bert_jax.models.parameter_sharding import parameter_axes
from bert_jax.parity.inputs import make_inputs
from bert_jax.sharding.rules import match
from bert_jax.training.layer_rates import rate_factors
from bert_jax.training.optimizer import decay_mask
from tests.random_params import random_params


@pytest.fixture(autouse=True)
def family(monkeypatch, request):
    folder = str(request.path.with_name("heads"))
    monkeypatch.setattr(heads, "__path__", [*heads.__path__, folder])
    own = (*bert.dense("importance", "importance"), Rule("importance_scale", "scale"))
    names = dataclasses.replace(bert.HUGGINGFACE, rules=(*bert.HUGGINGFACE.rules, *own))
    class_names = bert.FAMILY.class_names | {"toy": "BertForImportance"}
    family = dataclasses.replace(bert.FAMILY, class_names=class_names, huggingface=names)
    monkeypatch.setattr(bert, "FAMILY", family)
    return family


@pytest.fixture
def params(family, tiny_config):
    module = ModelDescription(tiny_config, "toy", family=family).make_module(Execution())
    return random_params(module)


def test_its_record_has_the_decay_axes_and_rates_of_its_parameters(params):
    own = {name: params[name] for name in ("importance", "importance_scale")}
    assert flatten_dict(decay_mask(own), sep="/") == {
        "importance/kernel": True, "importance/bias": False, "importance_scale": False,
    }  # fmt: skip
    assert match(parameter_axes(), "importance/kernel") == ("embed", None)
    factors = flatten_dict(rate_factors(own, head_factor=3.0), sep="/")
    assert {float(factor) for factor in factors.values()} == {3.0}


def test_its_files_are_written_and_read(family, tiny_config, params, tokenizer, tmp_path):
    description = ModelDescription(tiny_config, "toy", family=family)
    model_directory.save(tmp_path / "toy", description, params, tokenizer)
    for task in (None, "toy"):
        model = load(tmp_path / "toy", task=task)
        assert model.description.head == "toy"
        assert model.description.class_name == "BertForImportance"
        jax.tree.map(np.testing.assert_array_equal, model.params, params)
    assert heads_in({"importance/kernel", "importance/bias", "importance_scale"})[-1] == "toy"


def test_parity_compares_it(tiny_config, tokenizer):
    short, padded, _ = make_inputs(tiny_config, tokenizer, "toy", "regression")
    assert padded.labels["labels"].shape == padded.features["input_ids"].shape
    assert (short.labels["labels"][0, [0, -1]] == -100).all()
    output, labels = np.array([[0.5, 0.25, 1.0]]), {"labels": np.array([[1.0, 0.25, -100.0]])}
    losses = find_head("toy").compared.named_losses(output, labels, "regression")
    assert losses == {"squared_error": pytest.approx(0.125)}
