"""Configs: defaults, overrides, kinds of values, differences."""

import dataclasses

import pytest
from ml_collections import ConfigDict

from bert_jax.config import (
    RENAMED_KEYS,
    Sections,
    complete_config,
    default_config,
    differing_keys,
    flat_keys,
    get_key,
    load_config,
    override_keys,
    set_key,
)
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.experiment import workdir as run_directory
from bert_jax.families import bert
from bert_jax.models.config import EncoderConfig


@pytest.fixture
def config() -> ConfigDict:
    return default_config("pretraining")


def test_sections_and_some_defaults(config):
    assert set(config) == {
        "task", "seed", "precision", "preset", "init_from", "model", "tokenizer", "data",
        "optimizer", "train", "distillation", "mesh",
    }  # fmt: skip
    assert (config.task, config.precision, config.model.size) == ("pretraining", "auto", "")
    assert config.model.hidden_size is None
    assert (config.data.length, config.data.masking, config.data.objective) == (
        128,
        "token",
        "nsp",
    )
    # The optimizer and schedule of the original, see docs/differences.md.
    optimizer = config.optimizer
    assert (optimizer.epsilon, optimizer.weight_decay) == (1e-6, 0.01)
    assert (optimizer.beta1, optimizer.beta2) == (0.9, 0.999)
    assert (optimizer.bias_correction, optimizer.max_grad_norm) == (False, 1.0)
    assert (optimizer.decay, optimizer.decay_from) == ("linear", "start")


def test_the_recipe_of_fine_tuning():
    """Appendix A.3 of the paper."""
    config = default_config("classification")
    assert (config.optimizer.learning_rate, config.optimizer.warmup_ratio) == (3e-5, 0.1)
    assert (config.train.epochs, config.train.global_batch_size) == (3.0, 32)
    assert (config.train.steps, config.train.export) == (0, "best")
    assert config.optimizer.bias_correction


# Task, key, text and value.
TEXTS = [
    ("pretraining", "train.steps", "70_000", 70_000),
    ("pretraining", "optimizer.learning_rate", "1e-3", 1e-3),
    ("pretraining", "optimizer.weight_decay", "0", 0.0),
    ("pretraining", "optimizer.bias_correction", "true", True),
    ("pretraining", "model.scan_layers", "False", False),
    ("pretraining", "model.hidden_size", "96", 96),
    ("pretraining", "model.hidden_size", "None", None),  # the size decides again
    ("pretraining", "model.hidden_dropout_prob", "0", 0),
    ("pretraining", "model.hidden_dropout_prob", "0.1", 0.1),
    ("pretraining", "data.corpus", "corpora/mine", "corpora/mine"),
    ("pretraining", "data.corpus", "2026", "2026"),
    ("pretraining", "data.masking", "whole_word", "whole_word"),
    ("pretraining", "data.source", "text:a.txt", "text:a.txt"),
    ("pretraining", "data.source", "[{'source': 'text:a'}]", [{"source": "text:a"}]),
    ("pretraining", "train.seeds", "1,2", (1, 2)),
    ("classification", "data.labels", "neg,pos", ("neg", "pos")),
    ("classification", "data.labels", "neg", ("neg",)),
    ("classification", "data.labels", "['a,b', 'c']", ("a,b", "c")),
    ("classification", "data.labels", "1,2", ("1", "2")),
    ("classification", "data.labels", "1e3", ("1e3",)),
    ("classification", "data.labels", "[1, 2]", ("1", "2")),
    ("classification", "data.validation", "2026", ("2026",)),
]


@pytest.mark.parametrize(("task", "key", "text", "value"), TEXTS)
def test_a_text_becomes_a_value_of_the_type_of_the_default(task, key, text, value):
    config = override_keys(default_config(task), [(key, text)])
    assert get_key(config, key) == value
    assert type(get_key(config, key)) is type(value)


def test_an_argument_that_looks_like_a_number_is_a_text(tmp_path):
    path = tmp_path / "config.py"
    path.write_text("def get_config(corpus: str = ''):\n    return {'data': {'corpus': corpus}}\n")
    assert load_config(f"{path}:corpus=2026").data.corpus == "2026"


def test_the_later_override_wins_over_the_file(tmp_path):
    path = tmp_path / "config.py"
    path.write_text("def get_config():\n    return {'train': {'steps': 5, 'log_every': 6}}\n")
    config = load_config(str(path), [("train.steps", "7"), ("train.steps", "8")])
    assert (config.train.steps, config.train.log_every) == (8, 6)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        # The file gives 5 steps and a warm-up of 0.5; the task's own defaults are 3 epochs and 0.1.
        ("", (5, 0.0, 0, 0.5)),
        ("train.epochs=2", (0, 2.0, 0, 0.5)),
        ("optimizer.warmup_steps=3", (5, 0.0, 3, 0.0)),
        ("optimizer.warmup_steps=0", (5, 0.0, 0, 0.0)),
        ("train.steps=0 train.epochs=4 optimizer.warmup_ratio=0.2", (0, 4.0, 0, 0.2)),
        ("train.epochs=4 train.steps=0", (0, 4.0, 0, 0.5)),
    ],
)
def test_one_of_two_alternatives_replaces_the_other(tmp_path, overrides, expected, capsys):
    path = tmp_path / "config.py"
    path.write_text(
        "def get_config():\n"
        "    return {'task': 'classification', 'train': {'steps': 5}, "
        "'optimizer': {'warmup_ratio': 0.5}}\n"
    )
    pairs = [(key, value) for key, _, value in (item.partition("=") for item in overrides.split())]
    config = load_config(str(path), pairs)
    actual = (config.train.steps, config.train.epochs)
    actual += (config.optimizer.warmup_steps, config.optimizer.warmup_ratio)
    assert actual == expected
    # Only a value that the file sets is reported: 0.1, the default of warmup_ratio, is not.
    printed = [
        f"--config.{key} replaces {other} of {path}"
        for key, other in (
            ("train.epochs", "train.steps=5"),
            ("optimizer.warmup_steps", "optimizer.warmup_ratio=0.5"),
        )
        if f"{key}=" in overrides and other.partition("=")[0] not in overrides
    ]
    assert capsys.readouterr().err.splitlines() == printed
    # A run's config.json gives both: it is read as it was written.
    assert complete_config(config.to_dict(), where="here") == config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.steps", "x"),
        ("train.steps", 1.5),
        ("train.steps", True),
        ("train.steps", None),
        ("optimizer.bias_correction", 1),
        ("optimizer.learning_rate", True),
        ("precision", 32),
        ("data.corpus", None),
    ],
)
def test_values_of_another_kind(config, key, value):
    with pytest.raises(UserError, match=f"here: {key} is "):
        set_key(config, key, value, where="here")


def architecture(config, tokenizer, base=None):
    init = Sections.read(config).model_init("cpu")
    return dataclasses.replace(init, base=base).architecture(tokenizer)


def test_the_architecture_of_a_config(config, tokenizer):
    keys = [("model.size", "mini"), ("model.hidden_act", "relu"), ("model.num_hidden_layers", "3")]
    override_keys(config, keys)
    assert architecture(config, tokenizer) == EncoderConfig(
        vocab_size=40,
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_act="relu",
        pad_token_id=0,
    )
    override_keys(config, [("model.vocab_size", "64")])
    assert architecture(config, tokenizer).vocab_size == 64


def test_the_architecture_of_a_model_to_begin_with(config, tokenizer):
    base = bert.FAMILY.new_config("mini", vocab_size=99, hidden_act="relu")
    assert architecture(config, tokenizer, base) == base
    override_keys(config, [("model.hidden_dropout_prob", "0.3")])
    assert architecture(config, tokenizer, base).hidden_dropout_prob == 0.3
    override_keys(config, [("model.num_hidden_layers", "7")])
    with pytest.raises(
        UserError, match="model.num_hidden_layers is 7; init_from has a model with 4; "
    ):
        architecture(config, tokenizer, base)


def test_differences_between_configs():
    old = {"seed": 0, "train": {"steps": 5, "gone": 1}, "same": {"a": [1, 2]}}
    new = {"seed": 1, "train": {"steps": 5, "new": 2}, "same": {"a": [1, 2]}}
    assert differing_keys(old, new) == [
        ("seed", 0, 1),
        ("train.gone", 1, None),
        ("train.new", None, 2),
    ]


def test_free_keys_are_keys_and_change_no_number(config):
    known = {key for key, _ in flat_keys(config)}
    assert known >= run_directory.FREE_KEYS
    assert not run_directory.FREE_KEYS & {
        "seed", "train.steps", "train.global_batch_size", "train.microbatches", "precision",
        "data.corpus", "optimizer.learning_rate",
    }  # fmt: skip


def test_a_section_takes_the_name_of_a_boolean_key():
    for config in (
        override_keys(default_config("pretraining"), [("mesh", "auto")]),
        complete_config({"mesh": "auto"}, where="here"),
    ):
        assert config.mesh.auto is True
    for name in ("data", "tensor"):  # numbers
        with pytest.raises(UserError, match="unknown key 'mesh'"):
            complete_config({"mesh": name}, where="here")


def test_the_error_for_an_old_key_names_the_new_one():
    config = default_config("classification")
    for old, new in RENAMED_KEYS.items():
        assert new in dict(flat_keys(config))
        with pytest.raises(UserError) as error:
            override_keys(config, [(old, "x")])
        assert str(error.value) == f"--config: '{old}' is called '{new}' now; rename it"


def test_the_task_of_a_config_is_not_overridden(config):
    expected = (
        "--config: this is a config of task pretraining, not 'tagging'; choose another --config"
    )
    with pytest.raises(UserError) as error:
        override_keys(config, [("task", "tagging")])
    assert str(error.value) == expected
    assert override_keys(config, [("task", "pretraining")]).task == "pretraining"


def test_configs_of_the_package_have_bare_names():
    assert load_config("glue:task=cola").data.format == "glue:cola"
    assert load_config("glue:task=cola", [("seed", "3")]).seed == 3
    with pytest.raises(UserError, match="--config flue: no such file, and no config of the pack"):
        load_config("flue")
    with pytest.raises(UserError, match="--config glue.py: no such file"):
        load_config("glue.py")


def test_a_tokenizer_that_differs_from_the_model_is_refused(base_model, pieces, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces, "newer"]) + "\n")
    keys = {"init_from": str(base_model), "tokenizer": {"path": str(tmp_path / "vocab.txt")}}
    experiment = Experiment.from_config(complete_config(keys, where="test"))
    with pytest.raises(
        UserError, match=r"differs from the tokenizer of .*; leave tokenizer\.path out$"
    ):
        _ = experiment.model_init


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "translation.py:size=huge",
            "translation.py: model.size is 'huge'; known are tiny, small, base, big",
        ),
        ("gpt.py:family=openai-gpt,source=text:a", "openai-gpt needs tokenizer=DIRECTORY"),
    ],
)
def test_arguments_that_a_config_does_not_know(spec, message):
    with pytest.raises(UserError, match=message):
        load_config(f"configs/{spec}")
