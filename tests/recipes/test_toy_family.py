"""A family is one module: this one lies outside the package, and every entry point knows it."""

import json
from pathlib import Path

import jax
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax import families
from bert_jax.checkpoints import google_files, model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.inference.predict import predict
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.tokenization import load_tokenizer
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer

CONFIG = EncoderConfig(
    vocab_size=40,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
    type_vocab_size=1,
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
        CONFIG, Head.CLASSIFICATION, labels=("no", "yes", "maybe"), family=family
    )
    params = init_params(description.make_module(Execution()), jax.random.key(0))
    tokenizer = WordPieceTokenizer.from_vocabulary(
        pieces, BertSwitches(True, None, True), template=family.template
    )
    model_directory.save(tmp_path / "toy", description, params, tokenizer)
    return tmp_path / "toy"


def test_its_files_have_its_names(directory):
    fields = json.loads((directory / "config.json").read_text())
    assert fields["model_type"] == "toy"
    assert fields["architectures"] == ["ToyForSequenceClassification"]
    assert (fields["dim"], fields["n_layers"], "hidden_size" in fields) == (8, 2, False)
    names = set(load_file(directory / "model.safetensors"))
    assert {"toy.encoder.layer.1.output.dense.weight", "score.bias"} <= names
    assert all(name.startswith(("toy.", "score.")) for name in names)


def test_it_is_saved_as_it_was_loaded_to_the_byte(directory, tmp_path):
    model = bert_jax.load(directory)
    assert model.report.complete
    model.save(tmp_path / "again")
    for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (directory / name).read_bytes(), name


def test_its_head_is_found_by_its_tensors(directory, tmp_path):
    fields = json.loads((directory / "config.json").read_text())
    del fields["architectures"]
    (directory / "config.json").write_text(json.dumps(fields))
    assert bert_jax.load(directory).description.head is Head.CLASSIFICATION
    model = bert_jax.load(directory, task="masked_lm")
    assert "mlm_head/dense/kernel" in model.report.new
    bare = bert_jax.load(directory, task="ToyModel")
    bare.save(tmp_path / "bare")
    assert "embeddings.LayerNorm.weight" in load_file(tmp_path / "bare" / "model.safetensors")
    assert bert_jax.load(tmp_path / "bare").report.complete


def test_pairs_have_its_template_and_one_token_type(directory, family):
    tokenizer = bert_jax.load(directory).tokenizer
    (pair,) = tokenizer.encode_batch(["the cat"], ["it sat"], max_length=7)
    assert pair.tokens == ["[CLS]", "the", "[SEP]", "[SEP]", "it", "sat", "[SEP]"]
    assert pair.type_ids == [0] * 7
    assert tokenizer.num_special_tokens(pair=True) == 4
    loaded = load_tokenizer(directory, template=family.template)
    assert loaded.encode_batch(["the cat"], ["it sat"], max_length=7) == [pair]


def test_it_predicts_by_the_ordinary_entry_points(directory, tmp_path):
    model = bert_jax.load(directory)
    (one,) = model.classify([("the cat sat", "it ran")])
    assert one.label in ("no", "yes", "maybe")
    (tmp_path / "in.txt").write_text("the cat sat\n")
    predict(model, None, tmp_path / "in.txt", tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["label"] in ("no", "yes", "maybe")


def test_what_it_has_not_is_an_error_of_one_line(directory, tmp_path):
    model = bert_jax.load(directory)
    with pytest.raises(UserError, match="Google's files of toy models are not supported"):
        google_files.save(tmp_path / "g", model.description, model.params, model.tokenizer)
    with pytest.raises(UserError, match="toy models have no head tagging"):
        bert_jax.load(directory, task="tagging")
    with pytest.raises(UserError, match="model_type 'gpt2' is unknown; known are bert, toy"):
        find_family("gpt2")
