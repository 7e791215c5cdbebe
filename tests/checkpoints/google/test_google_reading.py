"""Reading Google's files: every variable, the config, the vocabulary."""

import dataclasses

import numpy as np
import pytest

from bert_jax.checkpoints.google_files import find, load_description
from bert_jax.errors import UserError
from bert_jax.inference import loading
from bert_jax.models.config import Head
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


def test_every_variable_finds_its_place(released):
    variables = counted(PRETRAINING)
    model = load(find(released))
    bert = model.params["bert"]
    layers = bert["encoder"]["layers"]
    names = [
        "attention/self/query/kernel",
        "attention/self/query/bias",
        "attention/self/key/kernel",
        "attention/self/key/bias",
        "attention/self/value/kernel",
        "attention/self/value/bias",
        "attention/output/dense/kernel",
        "attention/output/dense/bias",
        "attention/output/LayerNorm/gamma",
        "attention/output/LayerNorm/beta",
        "intermediate/dense/kernel",
        "intermediate/dense/bias",
        "output/dense/kernel",
        "output/dense/bias",
        "output/LayerNorm/gamma",
        "output/LayerNorm/beta",
    ]
    attention = layers["attention"]
    # Ours, and its shape in one layer: heads are axes of their own.
    ours = [
        (attention["query"]["kernel"], (6, 3, 2)),
        (attention["query"]["bias"], (3, 2)),
        (attention["key"]["kernel"], (6, 3, 2)),
        (attention["key"]["bias"], (3, 2)),
        (attention["value"]["kernel"], (6, 3, 2)),
        (attention["value"]["bias"], (3, 2)),
        (attention["output"]["kernel"], (3, 2, 6)),
        (attention["output"]["bias"], (6,)),
        (layers["attention_norm"]["scale"], (6,)),
        (layers["attention_norm"]["bias"], (6,)),
        (layers["intermediate"]["kernel"], (6, 5)),
        (layers["intermediate"]["bias"], (5,)),
        (layers["output"]["kernel"], (5, 6)),
        (layers["output"]["bias"], (6,)),
        (layers["output_norm"]["scale"], (6,)),
        (layers["output_norm"]["bias"], (6,)),
    ]
    expected = []
    for name, (parameter, shape) in zip(names, ours, strict=True):
        for layer in (0, 1):
            variable = variables[f"bert/encoder/layer_{layer}/{name}"]
            expected.append((parameter[layer], variable.reshape(shape)))
    embeddings, head = bert["embeddings"], model.params["mlm_head"]
    transform = "cls/predictions/transform"
    expected += [
        (
            embeddings["word_embeddings"]["embedding"],
            variables["bert/embeddings/word_embeddings"],
        ),
        (
            embeddings["position_embeddings"]["embedding"],
            variables["bert/embeddings/position_embeddings"],
        ),
        (
            embeddings["token_type_embeddings"]["embedding"],
            variables["bert/embeddings/token_type_embeddings"],
        ),
        (embeddings["layer_norm"]["scale"], variables["bert/embeddings/LayerNorm/gamma"]),
        (embeddings["layer_norm"]["bias"], variables["bert/embeddings/LayerNorm/beta"]),
        (bert["pooler"]["dense"]["kernel"], variables["bert/pooler/dense/kernel"]),
        (bert["pooler"]["dense"]["bias"], variables["bert/pooler/dense/bias"]),
        (head["dense"]["kernel"], variables[f"{transform}/dense/kernel"]),
        (head["dense"]["bias"], variables[f"{transform}/dense/bias"]),
        (head["layer_norm"]["scale"], variables[f"{transform}/LayerNorm/gamma"]),
        (head["layer_norm"]["bias"], variables[f"{transform}/LayerNorm/beta"]),
        (head["bias"], variables["cls/predictions/output_bias"]),
        (
            model.params["nsp_head"]["kernel"],
            variables["cls/seq_relationship/output_weights"].T,
        ),
        (model.params["nsp_head"]["bias"], variables["cls/seq_relationship/output_bias"]),
    ]
    assert len(expected) == len(variables)
    for found, variable in expected:
        assert found.dtype == np.float32
        assert np.asarray(found).tolist() == variable.tolist()
    assert model.report.complete
    assert set(model.report.taken) == set(variables)


def test_numbers_by_eye(released):
    """Variable 5 is the first layer's query kernel: its row 1 is 506 … 511, two for each head."""
    query = load(find(released)).params["bert"]["encoder"]["layers"]["attention"]["query"]
    assert query["kernel"][0, 1].tolist() == [[506, 507], [508, 509], [510, 511]]


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
        ("pretraining", PRETRAINING, Head.PRETRAINING, 2, ()),
        (
            "words",
            BERT | WORDS,
            Head.MASKED_LM,
            2,
            ("bert/pooler/dense/bias", "bert/pooler/dense/kernel"),
        ),
        ("next_sentence", BERT | NEXT_SENTENCE, Head.NEXT_SENTENCE, 2, ()),
        (
            "squad",
            BERT | SQUAD,
            Head.QUESTION_ANSWERING,
            2,
            ("bert/pooler/dense/bias", "bert/pooler/dense/kernel"),
        ),
        ("labels", BERT | LABELS, Head.CLASSIFICATION, 4, ()),
        ("bert", BERT, Head.ENCODER, 2, ()),
    ],
)
def test_the_variables_tell_the_model(
    checkpoints, tmp_path, name, shapes, head, num_labels, unexpected_keys
):
    checkpoints(name, shapes, tmp_path)
    model = load(find(tmp_path))
    assert model.description.head is head
    assert model.description.config.num_labels == num_labels
    assert model.report.new == ()
    assert model.report.unexpected_keys == unexpected_keys
    if name == "labels":
        kernel = counted(shapes)["output_weights"].T
        assert np.asarray(model.params["classifier"]["kernel"]).tolist() == kernel.tolist()


def test_a_bare_encoder_without_pooler(checkpoints, tmp_path):
    shapes = {name: shape for name, shape in BERT.items() if "pooler" not in name}
    checkpoints("encoder", shapes, tmp_path)
    model = load(find(tmp_path))
    assert not model.description.add_pooling_layer
    assert set(model.params) == {"embeddings", "encoder"}
    assert model.report.complete


def test_another_model_than_the_files_hold(released):
    model = load(find(released), Head.TAGGING)
    assert model.report.new == ("classifier/bias", "classifier/kernel")
    assert set(model.report.unexpected_keys) == {
        *WORDS,
        *NEXT_SENTENCE,
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
    }


def test_a_head_for_tagging_must_be_requested(checkpoints, tmp_path):
    checkpoints("labels", BERT | LABELS, tmp_path)
    model = load(find(tmp_path), Head.TAGGING)
    assert model.description.config.num_labels == 4
    assert model.report.new == ()


@pytest.mark.parametrize(("word", "lowercase"), [("cat", True), ("Cat", False)])
def test_the_vocabulary_settles_lower_casing(released, word, lowercase):
    (released / "vocab.txt").write_text("\n".join([*PIECES[:5], word, "##s"]) + "\n")
    tokenizer = load_tokenizer(find(released).directory)
    assert tokenizer.switches.do_lower_case is lowercase
    assert tokenizer.encode_sentences(["Cats"]) == [[5, 6]]


def test_as_users_load_it(released, tmp_path):
    model = loading.load(released / "bert_model.ckpt", "masked_lm", hidden_act="gelu_new")
    assert model.description.head is Head.MASKED_LM
    assert model.config == dataclasses.replace(CONFIG, hidden_act="gelu_new")
    assert [encoding.ids for encoding in model.tokenizer.encode_batch(["Cats"])] == [[2, 5, 6, 3]]
    (released / "vocab.txt").write_text("\n".join([*PIECES, "dog"]) + "\n")
    with pytest.raises(UserError, match="the tokenizer has 8 ids, the model only 7"):
        loading.load(released)
    (released / "vocab.txt").unlink()
    with pytest.raises(UserError, match="has no tokenizer.json, vocab.txt, vocab.json or"):
        loading.load(released)
