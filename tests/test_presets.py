"""Presets: the keys that they set, what replaces them, and what a run says of differences."""

import pytest

from bert_jax import presets
from bert_jax.config import _flat_defaults, complete_config, override_keys
from bert_jax.errors import OptionError
from bert_jax.experiment import Experiment
from bert_jax.families.family import find_family
from bert_jax.presets import PRESETS, keys_of_preset
from bert_jax.tasks import task_names


def test_every_key_is_one_of_some_task():
    known = {task: _flat_defaults(task) for task in task_names()}
    for name, preset in PRESETS.items():
        assert set(preset.keys) <= {key for keys in known.values() for key in keys}, name
        for task, keys in preset.tasks.items():
            assert set(keys) <= set(known[task]), (name, task)
        find_family("bert").new_config("tiny", **preset.model)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("task", ["classification", "pretraining", "replaced_tokens"])
def test_a_preset_alone_has_no_deviations(name, task):
    keys = {"preset": name, "task": task, "data": {"length": 512}}
    config = complete_config(keys, where="a test")
    model = find_family("bert").new_config("tiny", **PRESETS[name].model)
    assert list(presets.deviations(config, model)) == []


def test_later_keys_replace_it_and_are_named():
    keys = {"preset": "roberta", "optimizer": {"epsilon": 1e-8}}
    config = complete_config(keys, where="a test")
    assert (config.optimizer.epsilon, config.optimizer.beta2) == (1e-8, 0.98)
    assert (config.data.objective, config.data.cross_documents) == ("none", True)
    model = find_family("roberta").new_config("tiny", hidden_act="relu")
    assert list(presets.deviations(config, model)) == [
        "not as in preset roberta: optimizer.epsilon is 1e-08, there 1e-06",
        "not as in preset roberta: model.hidden_act is relu, there gelu",
    ]
    # On the command line it replaces the keys of the file, but not those of the command line.
    given = [("optimizer.weight_decay", "0.5"), ("preset", "huggingface")]
    config = override_keys(config, given)
    assert config.preset == "huggingface"
    assert (config.optimizer.epsilon, config.optimizer.weight_decay) == (1e-8, 0.5)
    assert config.optimizer.beta2 == 0.999


def test_fields_of_a_new_model(tiny_corpus):
    keys = {"preset": "google", "data": {"corpus": str(tiny_corpus), "length": 64}}
    config = complete_config({**keys, "model": {"size": "tiny"}}, where="a test")
    assert Experiment.from_config(config).task.description.config.hidden_act == "gelu_new"
    config = complete_config(
        {**keys, "model": {"size": "tiny", "hidden_act": "relu"}}, where="a test"
    )
    assert Experiment.from_config(config).task.description.config.hidden_act == "relu"


def test_by_hand():
    assert keys_of_preset("electra", "classification")["optimizer.layer_decay"] == 0.8
    assert keys_of_preset("electra", "replaced_tokens")["data.mask_replace_prob"] == 0.85
    # The task alone, without the preset, has ELECTRA's rows, too.
    assert keys_of_preset("electra", "replaced_tokens")["data.short_probability"] == 0.05
    assert _flat_defaults("replaced_tokens")["data.short_probability"] == 0.05
    assert keys_of_preset("albert", "pretraining")["optimizer.name"] == "lamb"
    assert keys_of_preset("albert", "classification")["optimizer.name"] == "adamw"
    assert keys_of_preset("google", "pretraining")["optimizer.bias_correction"] is False


def test_an_unknown_preset_is_named():
    for where, make in (
        ("a test", lambda: complete_config({"preset": "bart"}, where="a test")),
        ("--config", lambda: override_keys(complete_config({}, where=""), [("preset", "x")])),
    ):
        message = f"^{where}: preset is '.*'; known are google, hugging"
        with pytest.raises(OptionError, match=message) as error:
            make()
        assert error.value.key == "preset"
