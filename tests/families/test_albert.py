"""ALBERT: Google's files, by hand and there and back; shared layers."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

import bert_jax
from bert_jax.checkpoints import google_files
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.errors import UserError
from bert_jax.families.albert import FAMILY, GOOGLE
from bert_jax.families.family import find_family
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.tokenization import train_sentencepiece
from tests.random_params import random_params

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


def test_googles_names_and_shapes_by_hand():
    module = DESCRIPTION.make_module(Execution())
    tensors = to_tensors(random_params(module), GOOGLE, module)
    group = {
        "attention_1/self/query/kernel": (6, 6),
        "attention_1/self/query/bias": (6,),
        "attention_1/self/key/kernel": (6, 6),
        "attention_1/self/key/bias": (6,),
        "attention_1/self/value/kernel": (6, 6),
        "attention_1/self/value/bias": (6,),
        "attention_1/output/dense/kernel": (6, 6),
        "attention_1/output/dense/bias": (6,),
        "ffn_1/intermediate/dense/kernel": (6, 5),
        "ffn_1/intermediate/dense/bias": (5,),
        "ffn_1/intermediate/output/dense/kernel": (5, 6),
        "ffn_1/intermediate/output/dense/bias": (6,),
        "LayerNorm/gamma": (6,),
        "LayerNorm/beta": (6,),
        "LayerNorm_1/gamma": (6,),
        "LayerNorm_1/beta": (6,),
    }
    expected = {
        "bert/embeddings/word_embeddings": (40, 4),
        "bert/embeddings/position_embeddings": (9, 4),
        "bert/embeddings/token_type_embeddings": (2, 4),
        "bert/embeddings/LayerNorm/gamma": (4,),
        "bert/embeddings/LayerNorm/beta": (4,),
        "bert/encoder/embedding_hidden_mapping_in/kernel": (4, 6),
        "bert/encoder/embedding_hidden_mapping_in/bias": (6,),
        "bert/pooler/dense/kernel": (6, 6),
        "bert/pooler/dense/bias": (6,),
        "cls/predictions/transform/dense/kernel": (6, 4),
        "cls/predictions/transform/dense/bias": (4,),
        "cls/predictions/transform/LayerNorm/gamma": (4,),
        "cls/predictions/transform/LayerNorm/beta": (4,),
        "cls/predictions/output_bias": (40,),
        "cls/seq_relationship/output_weights": (2, 6),
        "cls/seq_relationship/output_bias": (2,),
    }
    for number in range(2):
        scope = f"bert/encoder/transformer/group_{number}/inner_group_0"
        expected |= {f"{scope}/{name}": shape for name, shape in group.items()}
    assert {name: tensor.shape for name, tensor in tensors.items()} == expected


@pytest.mark.slow
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
    found = flatten_dict(model.params, sep="/")
    for name, value in flatten_dict(params, sep="/").items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    # A file of Google's names no family.
    (tmp_path / "albert" / "bert_jax.json").unlink()
    for name in ("model_type", "architectures"):
        del fields[name]
    (tmp_path / "albert" / "albert_config.json").write_text(json.dumps(fields))
    assert bert_jax.load(tmp_path / "albert").config == CONFIG
    other = dataclasses.replace(DESCRIPTION, head="masked_lm", family=find_family("roberta"))
    with pytest.raises(UserError, match="Google's files of roberta models are not supported"):
        google_files.save(tmp_path / "other", other, params, tokenizer)


@pytest.mark.slow
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

    found, expected = (
        jax.jit(states, static_argnums=0)(module, params),
        jax.jit(states, static_argnums=0)(Encoder(whole, add_pooling_layer=False), repeated),
    )
    assert found.shape == (5, 1, 7, 6)
    np.testing.assert_allclose(found, expected, atol=1e-6)
