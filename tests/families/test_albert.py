"""ALBERT: Google's files there and back; layers that share their parameters."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints import google_files
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import UserError
from bert_jax.families.albert import FAMILY
from bert_jax.families.family import find_family
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.tokenization import train_sentencepiece
from tests.random_params import random_params

pytestmark = pytest.mark.slow

CONFIG = FAMILY.new_config(
    "tiny",
    vocab_size=40,
    embedding_size=4,
    hidden_size=6,
    num_hidden_layers=4,
    num_hidden_groups=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
)
DESCRIPTION = ModelDescription(CONFIG, "pretraining", family=FAMILY)


def test_googles_files_there_and_back(tmp_path):
    sentences = [f"the {letter} and {letter} ran" for letter in "abcdefghijklmnopqrstuvwxyz"] * 4
    tokenizer = train_sentencepiece(sentences, vocab_size=36)
    module = DESCRIPTION.make_module(Execution())
    params = random_params(module)
    google_files.save(tmp_path / "albert", DESCRIPTION, params, tokenizer)
    fields = json.loads((tmp_path / "albert" / "albert_config.json").read_text())
    assert fields["hidden_act"] == "gelu"  # Google's name of the tanh form
    model = bert_jax.load(tmp_path / "albert")
    assert model.description.class_name == "AlbertForPreTraining"
    assert model.config == CONFIG
    jax.tree.map(np.testing.assert_array_equal, model.params, params)
    # A file of Google's names no family.
    (tmp_path / "albert" / "bert_jax.json").unlink()
    for name in ("model_type", "architectures"):
        del fields[name]
    (tmp_path / "albert" / "albert_config.json").write_text(json.dumps(fields))
    assert bert_jax.load(tmp_path / "albert").config == CONFIG
    other = dataclasses.replace(DESCRIPTION, head="masked_lm", family=find_family("roberta"))
    with pytest.raises(UserError, match="Google's files of roberta models are not supported"):
        google_files.save(tmp_path / "other", other, params, tokenizer)


def test_layers_of_a_group_share_their_parameters():
    """Four layers of two groups are layers 0, 0, 1, 1 of a model without groups."""
    module = Encoder(CONFIG, add_pooling_layer=False)
    params = random_params(module)
    whole = dataclasses.replace(CONFIG, num_hidden_groups=None)
    layers = jax.tree.map(lambda leaf: leaf[np.array([0, 0, 1, 1])], params["encoder"]["layers"])
    repeated = {**params, "encoder": {**params["encoder"], "layers": layers}}
    ids = jnp.arange(2, 9)[None]

    def states(module, params):
        return module.apply({"params": params}, ids, output_hidden_states=True).hidden_states

    run = jax.jit(states, static_argnums=0)
    computed = run(module, params)
    assert computed.shape == (5, 1, 7, 6)
    expected = run(Encoder(whole, add_pooling_layer=False), repeated)
    np.testing.assert_allclose(computed, expected, atol=1e-6)
