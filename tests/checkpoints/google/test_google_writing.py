"""Writing Google's files, for google-research/bert to read."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.google_files import find, load_description, save
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.head import find_head, with_fields
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer, load_tokenizer
from tests.checkpoints.google.released import (
    CONFIG,
    GOOGLE_CONFIG,
    PIECES,
    PRETRAINING,
    counted,
    load,
    same,
)
from tests.random_params import random_params


def make(head, **fields):
    """A model with random parameters, none of them 0 or 1."""
    config = with_fields(CONFIG, {"num_labels": 4, **fields})
    description = ModelDescription(config, head, other={"directionality": "bidi"})
    if head == "classification":
        named = {"labels": ("a", "b", "c", "d"), "problem_type": "multi_label_classification"}
        description = dataclasses.replace(description, **named)
    params = random_params(find_head(head).make(config), seed=5, scale=0.4, all_differ=True)
    return description, params


@pytest.mark.parametrize("head", ["encoder", "pretraining", "classification", "question_answering"])
@pytest.mark.slow
def test_there_and_back_to_the_bit(tmp_path, tokenizer, head):
    description, params = make(head)
    written, rewritten = tmp_path / "one", tmp_path / "other"
    save(written, description, params, tokenizer)
    model = load(find(written))
    names = ["head", "config", "other", *(["labels", "problem_type"] * bool(description.labels))]
    for name in names:
        assert getattr(model.description, name) == getattr(description, name)
    assert load_tokenizer(written).fingerprint() == tokenizer.fingerprint()
    assert model.report.complete
    assert same(model.params, params)
    save(rewritten, model.description, model.params, load_tokenizer(written))
    assert {path.name for path in written.iterdir()} == {
        *("bert_config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"),
        *("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"),
        "bert_jax.json",
    }
    for path in written.iterdir():
        assert (rewritten / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_tensorflow_1_restores_what_is_written(released, tmp_path, tokenizer):
    """A graph with the variables of google-research/bert restores all of them by name."""
    model = load(find(released))
    prefix = tmp_path / "copy" / "mine.ckpt"
    save(prefix, model.description, model.params, tokenizer)
    tensorflow = import_tensorflow()
    v1 = tensorflow.compat.v1
    expected = counted(PRETRAINING)
    with tensorflow.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, shape, use_resource=False)
            for name, shape in PRETRAINING.items()
        }
        v1.train.Saver().restore(session, str(prefix))
        for name, value in session.run(variables).items():
            assert value.dtype == np.float32
            assert value.tolist() == expected[name].tolist()
    listed = tensorflow.train.list_variables(str(prefix))
    assert {name for name, _ in listed} == set(PRETRAINING)


@pytest.mark.parametrize(
    ("name", "written"), [("gelu", "gelu"), ("gelu_new", "gelu"), ("relu", "relu")]
)
def test_google_reads_the_config(tmp_path, tokenizer, name, written):
    description, params = make("masked_lm", hidden_act=name)
    save(tmp_path / "model", description, params, tokenizer)
    fields = json.loads((tmp_path / "model" / "bert_config.json").read_text())
    # Google's reader ignores unknown fields.
    expected = {**GOOGLE_CONFIG, "hidden_act": written}
    known = [key for key in GOOGLE_CONFIG if not key.startswith("pooler_")]
    assert {key: fields[key] for key in known} == {key: expected[key] for key in known}
    back = load_description(find(tmp_path / "model"))
    assert back.config.hidden_act == name
    assert back.other == {"directionality": "bidi"}
    fields["hidden_act"] = "tanh"  # by hand
    (tmp_path / "model" / MANIFEST).unlink()
    (tmp_path / "model" / "bert_config.json").write_text(json.dumps(fields))
    assert load_description(find(tmp_path / "model")).config.hidden_act == "tanh"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_act": "silu"}, "does not know hidden_act 'silu', only gelu, "),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; .* computes True alone"),
        ({"layer_norm_eps": 1e-6}, "layer_norm_eps is 1e-06; .* computes 1e-12 alone"),
        ({"use_crf": True}, "use_crf is True; .* computes False alone"),
        ({"qa_head": "joint"}, "qa_head is joint; .* computes independent alone"),
    ],
)
def test_models_that_google_cannot_compute(tmp_path, tokenizer, fields, message):
    description, params = make("masked_lm", **fields)
    with pytest.raises(UserError, match=f"{message}.*; save a model directory instead"):
        save(tmp_path / "model", description, params, tokenizer)
    assert not list(tmp_path.iterdir())


def test_tokenizers_that_google_does_not_have(tmp_path):
    description, params = make("masked_lm")
    for switches in (BertSwitches(True, False, True), BertSwitches(True, None, False)):
        tokenizer = WordPieceTokenizer.from_vocabulary(PIECES, switches)
        with pytest.raises(UserError, match="only WordPiece with BERT's own rules, and the model"):
            save(tmp_path / "model", description, params, tokenizer)
    assert not list(tmp_path.iterdir())


def test_a_model_replaces_one_of_ours_and_no_other(tmp_path, released, tokenizer):
    first, second = make("pretraining"), make("masked_lm")
    save(tmp_path / "model", *first, tokenizer)
    save(tmp_path / "model", *second, tokenizer)
    assert same(load(find(tmp_path / "model")).params, second[1])
    before = {path.name: path.read_bytes() for path in released.iterdir()}
    with pytest.raises(UserError, match="was not written by bert_jax"):
        save(released / "bert_model.ckpt", *second, tokenizer)
    assert {path.name: path.read_bytes() for path in released.iterdir()} == before


def test_a_model_in_the_working_directory(tmp_path, monkeypatch, tokenizer):
    description, params = make("masked_lm")
    monkeypatch.chdir(tmp_path)
    save(Path(), description, params, tokenizer)
    save(Path("bert_model.ckpt"), description, params, tokenizer)
    assert same(load(find(Path())).params, params)
