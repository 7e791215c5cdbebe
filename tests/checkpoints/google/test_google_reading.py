"""Reading Google's files: every variable, the config, the vocabulary."""

import dataclasses

import numpy as np
import pytest

from bert_jax.checkpoints.google_files import find, load_description
from bert_jax.checkpoints.parameters import to_tensors
from bert_jax.errors import UserError
from bert_jax.families.bert import GOOGLE as BERT_NAMES
from bert_jax.inference import loading
from bert_jax.models.execution import Execution
from bert_jax.tokenization import load_tokenizer
from tests.checkpoints.google.released import (
    BERT,
    CONFIG,
    LABELS,
    NEXT_SENTENCE,
    PIECES,
    PRETRAINING,
    SQUAD,
    WORDS,
    counted,
    load,
)


def test_every_variable_is_a_parameter(released):
    """tests/families/test_tensor_names.py compares the names of both sides by hand."""
    variables = counted(PRETRAINING)
    model = load(find(released))
    module = model.description.make_module(Execution())
    read = to_tensors(model.params, BERT_NAMES, module)
    assert set(read) == set(variables) == set(model.report.taken)
    assert all(read[name].dtype == np.float32 for name in variables)
    assert all(read[name].tolist() == variables[name].tolist() for name in variables)
    assert model.report.complete
    # Variable 5 is the first layer's query kernel: its row 1 is 506 … 511, two for each head.
    query = model.params["bert"]["encoder"]["layers"]["attention"]["query"]["kernel"]
    assert query[0, 1].tolist() == [[506, 507], [508, 509], [510, 511]]


POOLER = ("bert/pooler/dense/bias", "bert/pooler/dense/kernel")
WITHOUT_POOLER = {name: shape for name, shape in BERT.items() if name not in POOLER}


def test_the_config_of_a_released_model(released):
    description = load_description(find(released))
    assert description.config == CONFIG
    assert description.config.hidden_act == "gelu"  # the erf form, as Hugging Face reads it
    assert description.other == {
        "directionality": "bidi",
        "pooler_fc_size": 768,
        "pooler_type": "first_token_transform",
    }


@pytest.mark.parametrize(
    ("name", "shapes", "head", "num_labels", "unexpected_keys"),
    [
        ("pretraining", PRETRAINING, "pretraining", 2, ()),
        ("words", BERT | WORDS, "masked_lm", 2, POOLER),
        ("next_sentence", BERT | NEXT_SENTENCE, "next_sentence", 2, ()),
        ("squad", BERT | SQUAD, "question_answering", 2, POOLER),
        ("labels", BERT | LABELS, "classification", 4, ()),
        ("bert", BERT, "encoder", 2, ()),
        ("encoder", WITHOUT_POOLER, "encoder", 2, ()),
    ],
)
def test_the_variables_decide_the_head(
    checkpoints, tmp_path, name, shapes, head, num_labels, unexpected_keys
):
    checkpoints(name, shapes, tmp_path)
    model = load(find(tmp_path))
    assert model.description.head == head
    assert model.description.config.num_labels == num_labels
    assert model.report.new == ()
    assert model.report.unexpected_keys == unexpected_keys
    if name == "encoder":
        assert set(model.params) == {"embeddings", "encoder"}
    if name == "labels":
        kernel = counted(shapes)["output_weights"].T
        assert np.asarray(model.params["classifier"]["kernel"]).tolist() == kernel.tolist()


def test_a_head_for_tagging_must_be_requested(checkpoints, released, tmp_path):
    model = load(find(released), "tagging")
    assert model.report.new == ("classifier/bias", "classifier/kernel")
    assert set(model.report.unexpected_keys) == {*WORDS, *NEXT_SENTENCE, *POOLER}
    checkpoints("labels", BERT | LABELS, tmp_path)
    model = load(find(tmp_path), "tagging")
    assert model.description.config.num_labels == 4
    assert model.report.new == ()


@pytest.mark.parametrize(("word", "lowercase"), [("cat", True), ("Cat", False)])
def test_the_vocabulary_decides_lower_casing(released, word, lowercase):
    (released / "vocab.txt").write_text("\n".join([*PIECES[:5], word, "##s"]) + "\n")
    tokenizer = load_tokenizer(find(released).directory)
    assert tokenizer.switches.do_lower_case is lowercase
    assert tokenizer.encode_sentences(["Cats"]) == [[5, 6]]


def test_as_users_load_it(released, tmp_path):
    model = loading.load(released / "bert_model.ckpt", "masked_lm", hidden_act="gelu_new")
    assert model.description.head == "masked_lm"
    assert model.config == dataclasses.replace(CONFIG, hidden_act="gelu_new")
    assert [encoding.ids for encoding in model.tokenizer.encode_batch(["Cats"])] == [[2, 5, 6, 3]]
    (released / "vocab.txt").write_text("\n".join([*PIECES, "dog"]) + "\n")
    with pytest.raises(UserError, match="the tokenizer has 8 ids, the model only 7"):
        loading.load(released)
    (released / "vocab.txt").unlink()
    with pytest.raises(UserError, match="has no tokenizer.json, vocab.txt, vocab.json or"):
        loading.load(released)
