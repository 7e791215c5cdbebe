"""The recipe "add a family" for a decoder: it generates by the ordinary entry points."""

from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax import families
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.families.family import find_family
from bert_jax.models.execution import Execution
from bert_jax.tokenization.wordpiece import BertSwitches, WordPieceTokenizer
from tests.random_params import random_params

SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture
def directory(monkeypatch, pieces, tmp_path):
    folder = str(Path(__file__).with_name("families"))
    monkeypatch.setattr(families, "__path__", [*families.__path__, folder])
    family = find_family("toy_decoder")
    config = family.new_config(
        "tiny", vocab_size=len(pieces), intermediate_size=12, max_position_embeddings=16, **SIZES
    )
    description = ModelDescription(config, "causal_lm", family=family)
    params = random_params(description.make_module(Execution()))
    tokenizer = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True))
    model_directory.save(tmp_path / "toy", description, params, tokenizer)
    return tmp_path / "toy"


def test_its_files_are_saved_as_they_were_loaded(directory, tmp_path):
    bert_jax.load(directory).save(tmp_path / "again")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (directory / name).read_bytes(), name


def test_it_writes_the_most_probable_tokens(directory):
    """With its cache as by the whole text at each step."""
    model = bert_jax.load(directory)
    (generation,) = model.generate(["the cat"], max_new_tokens=4)[0]
    (encoding,) = model.tokenizer.encode_batch(["the cat"])
    ids = list(encoding.ids)
    for token in generation.token_ids:
        logits = np.array(model.module.apply({"params": model.params}, np.array([ids])))
        assert logits[0, -1].argmax() == token
        ids.append(token)
    assert len(generation.token_ids) == 4
