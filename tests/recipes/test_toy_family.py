"""The recipe "add a family": one module outside of the package, and every entry point has it."""

import dataclasses
import json
import string
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax import families
from bert_jax.checkpoints import google_files, model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import complete_config
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.families.family import find_family
from bert_jax.files.manifest import MANIFEST
from bert_jax.inference.predict import predict
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.tokenization import (
    SentencePieceTokenizer,
    train_sentencepiece,
)
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer
from tests.random_params import random_params

CONFIG = EncoderConfig(
    vocab_size=40,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=15,
    type_vocab_size=1,
    positions_after_padding=True,
    num_labels=3,
)


@pytest.fixture
def family(monkeypatch):
    folder = str(Path(__file__).with_name("families"))
    monkeypatch.setattr(families, "__path__", [*families.__path__, folder])
    return find_family("toy")


@pytest.fixture
def directory(family, pieces, tmp_path):
    description = ModelDescription(
        CONFIG, "classification", labels=("no", "yes", "maybe"), family=family
    )
    params = random_params(description.make_module(Execution()))
    tokenizer = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True))
    model_directory.save(tmp_path / "toy", description, params, tokenizer)
    return tmp_path / "toy"


def test_its_files_have_its_names_and_are_saved_as_they_were_loaded(directory, tmp_path):
    fields = json.loads((directory / "config.json").read_text())
    assert fields["model_type"] == "toy"
    assert fields["architectures"] == ["ToyForSequenceClassification"]
    assert (fields["dim"], fields["n_layers"], "hidden_size" in fields) == (8, 2, False)
    names = set(load_file(directory / "model.safetensors"))
    assert {"toy.encoder.layer.1.output.dense.weight", "score.bias"} <= names
    assert all(name.startswith(("toy.", "score.")) for name in names)

    model = bert_jax.load(directory)
    assert model.report.complete
    model.save(tmp_path / "again")
    for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (directory / name).read_bytes(), name


def test_an_error_about_a_field_names_its_key(directory):
    fields = json.loads((directory / "config.json").read_text())
    (directory / MANIFEST).unlink()
    (directory / "config.json").write_text(json.dumps({**fields, "dim": 9}))
    message = r"config\.json: dim is 9; it must be a multiple of num_attention_heads, 2$"
    with pytest.raises(UserError, match=message):
        bert_jax.load(directory)


@pytest.mark.slow
def test_its_tensors_show_its_head(directory, tmp_path):
    fields = json.loads((directory / "config.json").read_text())
    del fields["architectures"]
    (directory / MANIFEST).unlink()
    (directory / "config.json").write_text(json.dumps(fields))
    assert bert_jax.load(directory).description.head == "classification"
    model = bert_jax.load(directory, task="masked_lm")
    assert "mlm_head/dense/kernel" in model.report.new
    bert_jax.load(directory, task="ToyModel").save(tmp_path / "bare")
    assert "embeddings.LayerNorm.weight" in load_file(tmp_path / "bare" / "model.safetensors")
    assert bert_jax.load(tmp_path / "bare").report.complete


def test_its_texts_begin_at_its_row_of_the_position_table(directory):
    model = bert_jax.load(directory)
    assert model.config.max_length == 14
    with pytest.raises(UserError, match="takes 3 to 14 tokens"):
        model.classify(["the cat"], max_length=15)
    longer = model.extend_positions(28)
    table = longer.params["bert"]["embeddings"]["position_embeddings"]["embedding"]
    assert (longer.config.max_position_embeddings, longer.config.max_length) == (29, 28)
    np.testing.assert_array_equal(table[15:], table[1:15])


def test_its_kind_of_tokenizer_is_the_default(directory, family):
    for name in (MANIFEST, "tokenizer_config.json"):
        (directory / name).unlink()
    sentences = [f"the {letter} and {letter}" for letter in string.ascii_lowercase] * 4
    train_sentencepiece(sentences, vocab_size=40).save(directory / "other")
    (directory / "other" / "spiece.model").rename(directory / "spiece.model")
    assert isinstance(family.load_tokenizer(directory), WordPieceTokenizer)
    other = dataclasses.replace(family, tokenizer_kind="sentencepiece")
    assert isinstance(other.load_tokenizer(directory), SentencePieceTokenizer)


def test_a_config_trains_a_new_model_or_one_of_its_files(family, directory, base_model, tmp_path):
    train = tmp_path / "train.tsv"
    train.write_text("text\tlabel\nthe cat\tno\nit sat\tyes\n")
    keys = {
        "task": "classification",
        "data": {"train": str(train), "validation": str(train), "length": 8},
    }
    model = {"family": "toy", "size": "tiny"}
    new = keys | {"model": model, "tokenizer": {"path": str(base_model)}}
    for config in (new, keys | {"init_from": str(directory)}):
        task = Experiment.from_config(complete_config(config, where="a test")).task
        assert task.description.class_name == "ToyForSequenceClassification"
        assert task.description.config.position_offset == 1
        assert task.tokenizer.template.num_token_types(pair=True) == 1
    other = complete_config(keys | {"model": model, "init_from": str(base_model)}, where="a test")
    message = "model.family is 'toy'; init_from holds a model of the family bert, with another "
    with pytest.raises(UserError, match=f"{message}positions_after_padding; leave it out"):
        _ = Experiment.from_config(other).task


def test_it_predicts_by_the_ordinary_entry_points(directory, tmp_path):
    (tmp_path / "in.txt").write_text("the cat sat\n")
    predict(bert_jax.load(directory), None, tmp_path / "in.txt", tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["label"] in ("no", "yes", "maybe")


def test_unsupported_formats_and_heads_are_errors_of_one_line(directory, tmp_path):
    model = bert_jax.load(directory)
    with pytest.raises(UserError, match="Google's files of toy models are not supported"):
        google_files.save(tmp_path / "g", model.description, model.params, model.tokenizer)
    with pytest.raises(UserError, match="toy models have no head tagging"):
        bert_jax.load(directory, task="tagging")
    with pytest.raises(UserError, match="model_type 'xlnet' is unknown; known .* t5, toy, "):
        find_family("xlnet")
