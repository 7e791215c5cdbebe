"""Presets: the keys that they set, what replaces them, and what a run says of differences."""

import dataclasses
import math
from pathlib import Path

import jax
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import _flat_defaults, complete_config, load_config, override_keys, presets
from bert_jax.config.presets import PRESETS, keys_of_preset
from bert_jax.errors import OptionError
from bert_jax.experiment import Experiment
from bert_jax.families.family import find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.tasks import task_names

FAMILIES = {
    "transformer": "marian",
    "wmt": "marian",
    "gpt1": "openai-gpt",
    "nanogpt": "gpt2",
    "t5": "t5",
    "t5_v1_1": "t5",
}
# What no family of the preset has.
MISSING = {
    "wmt": ["model.norm_first is False, there True", "model.layer_norm_eps is 1e-05, there 1e-06"],
    "nanogpt": ["model.has_biases is True, there False", "model.has_norm_biases is True, there F"],
}


def new_model(name):
    """A new model of the family of a preset, with those of its fields that the family has."""
    family = find_family(FAMILIES.get(name, "bert"))
    known = family.file_fields()
    fields = {key: value for key, value in PRESETS[name].model.items() if key in known}
    return family.new_config("tiny", **fields)


def test_every_key_is_one_of_some_task():
    known = {task: _flat_defaults(task) for task in task_names()}
    for name, preset in PRESETS.items():
        assert set(preset.keys) <= {key for keys in known.values() for key in keys}, name
        for task, keys in preset.tasks.items():
            assert set(keys) <= set(known[task]), (name, task)
        assert not {*preset.model} - {field.name for field in dataclasses.fields(EncoderConfig)}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("kind", ["bert", "decoder"])
def test_a_preset_alone_has_no_deviations(name, kind):
    tasks = {
        "bert": ("classification", "pretraining", "replaced_tokens"),
        "decoder": ("causal_lm", "span_corruption", "text_to_text"),
    }
    missing = [f"not as in preset {name}: {line}" for line in MISSING.get(name, ())]
    for task in tasks[kind]:
        length = keys_of_preset(name, task).get("data.length", 512)
        keys = {"preset": name, "task": task, "data": {"length": length}}
        config = complete_config(keys, where="a test")
        found = list(presets.deviations(config, new_model(name)))
        assert len(found) == len(missing)
        assert all(line.startswith(start) for line, start in zip(found, missing, strict=True))


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
    assert keys_of_preset("transformer", "text_to_text")["train.average_checkpoints"] == 5
    assert keys_of_preset("wmt", "text_to_text")["generation.length_penalty"] == 0.6
    assert keys_of_preset("t5", "span_corruption")["optimizer.decay"] == "constant_inverse_sqrt"
    assert keys_of_preset("t5_v1_1", "text_to_text")["optimizer.decay"] == "constant"


@pytest.mark.parametrize(
    ("config", "name", "differing"),
    [
        ("gpt.py:family=openai-gpt", "gpt1", {}),
        ("gpt.py", "nanogpt", {}),
        ("t5.py", "t5", {}),
        ("text_to_text.py", "t5", {}),
        ("translation.py", "transformer",
         {"tokenizer.model_type": "unigram", "data.packing": True}),
    ],
)  # fmt: skip
def test_the_config_of_a_paper_is_as_its_preset(config, name, differing):
    """Both have the paper's switches: what differs is what the config says otherwise."""
    path = Path(__file__).parents[1] / "configs" / config
    keys = load_config(str(path))
    expected = keys_of_preset(name, keys["task"])
    found = {key: keys[key.partition(".")[0]][key.partition(".")[2]] for key in expected}
    assert {key: value for key, value in found.items() if value != expected[key]} == differing


def test_flax_wmt_has_dropout_inside_the_feed_forward_layer():
    assert new_model("wmt").activation_dropout == 0.1


@pytest.mark.parametrize(
    ("size", "millions"),
    [("small_v1_0", 60.5), ("base_v1_0", 222.9), ("large_v1_0", 737.7), ("3b", 2851.6),
     ("small", 77.0), ("base", 247.6), ("xl", 2849.8)],
)  # fmt: skip
def test_sizes_of_t5_have_the_published_numbers_of_parameters(size, millions):
    """t5-small to t5-3b; of version 1.1, google/t5-v1_1-small to -xl."""
    version = {"tie_word_embeddings": False, "hidden_act": "gated-gelu"}
    is_old = size.endswith("_v1_0") or size == "3b"
    family = find_family("t5")
    config = family.new_config(size, vocab_size=32_128, **({} if is_old else version))
    module = ModelDescription(config, "text_to_text", family=family).make_module(Execution())
    shapes = jax.eval_shape(lambda key: init_params(module, key), jax.random.key(0))
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    assert round(count / 1e6, 1) == millions


def test_an_unknown_preset_is_named():
    for where, make in (
        ("a test", lambda: complete_config({"preset": "bart"}, where="a test")),
        ("--config", lambda: override_keys(complete_config({}, where=""), [("preset", "x")])),
    ):
        message = f"^{where}: preset is '.*'; known are google, hugging"
        with pytest.raises(OptionError, match=message) as error:
            make()
        assert error.value.key == "preset"
