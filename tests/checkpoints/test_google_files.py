"""Google's files: real TensorFlow 1 checkpoints, written here by TensorFlow's own Saver."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.google_files import (
    GoogleFiles,
    find,
    load_description,
    load_params,
    save,
)
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError
from bert_jax.inference import loading
from bert_jax.models.architectures import ARCHITECTURES
from bert_jax.models.bert import abstract_params
from bert_jax.models.config import BertConfig, Execution
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer, load_tokenizer
from bert_jax.tokenization.training import train_sentencepiece

# L 2, D 6, N 3, H 2, F 5, V 7, C 4; a released bert_config.json with all that it may hold.
GOOGLE_CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.2,
    "hidden_size": 6,
    "initializer_range": 0.02,
    "intermediate_size": 5,
    "max_position_embeddings": 9,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pooler_fc_size": 768,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 7,
}
CONFIG = BertConfig(
    vocab_size=7,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
    hidden_dropout_prob=0.2,
)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s"]


def dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (6,), f"{name}/beta": (6,)}


def encoder_layer(name: str) -> dict[str, tuple[int, ...]]:
    return {
        **dense(f"{name}/attention/self/query", 6, 6),
        **dense(f"{name}/attention/self/key", 6, 6),
        **dense(f"{name}/attention/self/value", 6, 6),
        **dense(f"{name}/attention/output/dense", 6, 6),
        **norm(f"{name}/attention/output/LayerNorm"),
        **dense(f"{name}/intermediate/dense", 6, 5),
        **dense(f"{name}/output/dense", 5, 6),
        **norm(f"{name}/output/LayerNorm"),
    }


BERT = {
    "bert/embeddings/word_embeddings": (7, 6),
    "bert/embeddings/position_embeddings": (9, 6),
    "bert/embeddings/token_type_embeddings": (2, 6),
    **norm("bert/embeddings/LayerNorm"),
    **encoder_layer("bert/encoder/layer_0"),
    **encoder_layer("bert/encoder/layer_1"),
    **dense("bert/pooler/dense", 6, 6),
}
WORDS = {
    **dense("cls/predictions/transform/dense", 6, 6),
    **norm("cls/predictions/transform/LayerNorm"),
    "cls/predictions/output_bias": (7,),
}
NEXT_SENTENCE = {
    "cls/seq_relationship/output_weights": (2, 6),
    "cls/seq_relationship/output_bias": (2,),
}
SQUAD = {"cls/squad/output_weights": (2, 6), "cls/squad/output_bias": (2,)}
LABELS = {"output_weights": (4, 6), "output_bias": (4,)}
PRETRAINING = BERT | WORDS | NEXT_SENTENCE


def counted(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The numbers of variable 0 are 0, 1, 2, …, those of variable 1 are 100, 101, 102, …"""
    return {
        name: np.float32(100 * number + np.arange(np.prod(shape)).reshape(shape))
        for number, (name, shape) in enumerate(shapes.items())
    }


def write_with_saver(prefix, values) -> None:
    """As the scripts of google-research/bert do: variables by name, Adam's slots, the step."""
    tensorflow = import_tensorflow()
    v1 = tensorflow.compat.v1
    with tensorflow.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=value, use_resource=False)
            for slot in ("adam_m", "adam_v"):
                v1.get_variable(f"{name}/{slot}", initializer=value * 0, use_resource=False)
        v1.train.get_or_create_global_step()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(prefix))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Writes each checkpoint once."""
    kept = tmp_path_factory.mktemp("checkpoints")

    def write(name, shapes, directory):
        if not (kept / name).is_dir():
            (kept / name).mkdir()
            write_with_saver(kept / name / "bert_model.ckpt", counted(shapes))
        shutil.copytree(kept / name, directory, dirs_exist_ok=True)
        (directory / "bert_config.json").write_text(json.dumps(GOOGLE_CONFIG))
        (directory / "vocab.txt").write_text("\n".join(PIECES) + "\n")

    return write


@pytest.fixture
def released(checkpoints, tmp_path):
    """The files of a pre-trained model, as they come in Google's archives."""
    directory = tmp_path / "uncased_L-2_H-6_A-3"
    checkpoints("pretraining", PRETRAINING, directory)
    return directory


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.from_vocabulary(PIECES, BertSwitches(True, None, True))


class Model(NamedTuple):
    description: ModelDescription
    params: Any
    report: LoadReport


def load(files, architecture="") -> Model:
    """What every caller does with the two functions."""
    description = load_description(files, architecture)
    return Model(description, *load_params(files, description.make_module(Execution())))


def same(one, other) -> bool:
    """Whether two trees are equal to the bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


# Reading


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
    ("name", "shapes", "architecture", "num_labels", "left_over"),
    [
        ("pretraining", PRETRAINING, "BertForPreTraining", 2, ()),
        (
            "words",
            BERT | WORDS,
            "BertForMaskedLM",
            2,
            ("bert/pooler/dense/bias", "bert/pooler/dense/kernel"),
        ),
        ("next_sentence", BERT | NEXT_SENTENCE, "BertForNextSentencePrediction", 2, ()),
        (
            "squad",
            BERT | SQUAD,
            "BertForQuestionAnswering",
            2,
            ("bert/pooler/dense/bias", "bert/pooler/dense/kernel"),
        ),
        ("labels", BERT | LABELS, "BertForSequenceClassification", 4, ()),
        ("bert", BERT, "BertModel", 2, ()),
    ],
)
def test_the_variables_tell_the_model(
    checkpoints, tmp_path, name, shapes, architecture, num_labels, left_over
):
    checkpoints(name, shapes, tmp_path)
    model = load(find(tmp_path))
    assert model.description.architecture == architecture
    assert model.description.config.num_labels == num_labels
    assert model.report.new == ()
    assert model.report.left_over == left_over
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
    model = load(find(released), "BertForTokenClassification")
    assert model.report.new == ("classifier/bias", "classifier/kernel")
    assert set(model.report.left_over) == {
        *WORDS,
        *NEXT_SENTENCE,
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
    }


def test_a_head_for_tagging_must_be_asked_for(checkpoints, tmp_path):
    checkpoints("labels", BERT | LABELS, tmp_path)
    model = load(find(tmp_path), "BertForTokenClassification")
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
    assert model.description.architecture == "BertForMaskedLM"
    assert model.config == dataclasses.replace(CONFIG, hidden_act="gelu_new")
    assert [encoding.ids for encoding in model.tokenizer.encode_batch(["Cats"])] == [[2, 5, 6, 3]]
    (released / "vocab.txt").write_text("\n".join([*PIECES, "dog"]) + "\n")
    with pytest.raises(UserError, match="the tokenizer has 8 ids, the model only 7"):
        loading.load(released)
    (released / "vocab.txt").unlink()
    with pytest.raises(UserError, match="has no tokenizer.json, vocab.txt or"):
        loading.load(released)


# Finding


def test_find_knows_every_way_to_say_it(released):
    files = GoogleFiles(released, released / "bert_model.ckpt")
    assert find(released) == files
    assert find(released / "bert_model.ckpt") == files
    for ending in ("index", "meta", "data-00000-of-00001"):
        assert find(released / f"bert_model.ckpt.{ending}") == files


def test_find_leaves_other_directories_alone(released, tmp_path):
    assert find(tmp_path) is None
    assert find(tmp_path / "nowhere") is None
    (released / "config.json").write_text("{}")  # Hugging Face's
    assert find(released) is None
    assert find(released / "bert_model.ckpt") is not None


def test_find_takes_the_newest_step(released):
    (released / "checkpoint").unlink()
    for step in (0, 20000, 3000):
        for path in released.glob("bert_model.ckpt.*"):
            copy = path.name.replace("bert_model.ckpt", f"model.ckpt-{step}")
            shutil.copy(path, released / copy)
    for path in released.glob("bert_model.ckpt.*"):
        path.unlink()
    assert find(released).prefix == released / "model.ckpt-20000"
    (released / "checkpoint").write_text(
        'model_checkpoint_path: "/gone/model.ckpt-3000"\n'
        'all_model_checkpoint_paths: "/gone/model.ckpt-20000"\n'
    )
    assert find(released).prefix == released / "model.ckpt-3000"
    assert find(released / "model.ckpt-0").prefix == released / "model.ckpt-0"


def test_find_does_not_choose_between_two_trainings(released):
    (released / "checkpoint").unlink()
    for path in released.glob("bert_model.ckpt.*"):
        shutil.copy(path, path.with_name(path.name.replace("bert_model", "other_model")))
    with pytest.raises(
        UserError,
        match=r"holds 2 checkpoints \(bert_model.ckpt, other_model.ckpt\); give .*/bert_model.ckpt",
    ):
        find(released)


@pytest.mark.parametrize("path", [".", "bert_model.ckpt"])
def test_a_run_directory_of_googles_scripts(released, path):
    (released / "bert_config.json").unlink()
    with pytest.raises(UserError, match=r"bert_model.ckpt has no bert_config.json beside it; copy"):
        find(released / path)


# Writing


def make(architecture, **fields):
    """A model with random parameters, none of them 0 or 1."""
    config = dataclasses.replace(CONFIG, **{"num_labels": 4, **fields})
    description = ModelDescription(config, architecture, other={"directionality": "bidi"})
    generator = np.random.default_rng(5)
    params = jax.tree.map(
        lambda leaf: generator.normal(0.1, 0.4, leaf.shape).astype(np.float32),
        abstract_params(ARCHITECTURES[architecture](config)),
    )
    return description, params


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_there_and_back_to_the_bit(tmp_path, tokenizer, architecture):
    description, params = make(architecture)
    one, other = tmp_path / "one", tmp_path / "other"
    save(one, description, params, tokenizer)
    model = load(find(one))
    assert model.description.architecture == architecture
    assert model.description.config == description.config
    assert model.description.other == description.other
    assert load_tokenizer(one).fingerprint() == tokenizer.fingerprint()
    assert model.report.complete
    assert same(model.params, params)
    save(other, model.description, model.params, load_tokenizer(one))
    assert {path.name for path in one.iterdir()} == {
        *("bert_config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"),
        *("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"),
    }
    for path in one.iterdir():
        assert (other / path.name).read_bytes() == path.read_bytes()


def test_labels_survive(tmp_path, tokenizer):
    description, params = make("BertForSequenceClassification")
    named = dataclasses.replace(
        description, labels=("a", "b", "c", "d"), problem_type="multi_label_classification"
    )
    save(tmp_path / "model", named, params, tokenizer)
    assert load_description(find(tmp_path / "model")) == named


def test_tensorflow_1_restores_what_is_written(released, tmp_path, tokenizer):
    """A graph with the variables of google-research/bert takes all of them by name."""
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
    ("ours", "theirs"), [("gelu", "gelu"), ("gelu_new", "gelu"), ("relu", "relu")]
)
def test_the_config_is_one_that_google_reads(tmp_path, tokenizer, ours, theirs):
    description, params = make("BertForMaskedLM", hidden_act=ours)
    save(tmp_path / "model", description, params, tokenizer)
    fields = json.loads((tmp_path / "model" / "bert_config.json").read_text())
    # Its reader takes what it knows and lets everything else lie.
    known = {name: fields[name] for name in GOOGLE_CONFIG if not name.startswith("pooler_")}
    expected = {**GOOGLE_CONFIG, "hidden_act": theirs}
    assert known == {name: expected[name] for name in known}
    back = load_description(find(tmp_path / "model"))
    assert back.config.hidden_act == ours
    assert back.other == {"directionality": "bidi"}
    fields["hidden_act"] = "tanh"  # by hand
    (tmp_path / "model" / "bert_config.json").write_text(json.dumps(fields))
    assert load_description(find(tmp_path / "model")).config.hidden_act == "tanh"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_act": "silu"}, "does not know hidden_act 'silu', only gelu, "),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; .* computes True alone"),
        ({"layer_norm_eps": 1e-6}, "layer_norm_eps is 1e-06; .* computes 1e-12 alone"),
        ({"use_crf": True}, "use_crf is True; .* computes False alone"),
    ],
)
def test_models_that_google_cannot_compute(tmp_path, tokenizer, fields, message):
    description, params = make("BertForMaskedLM", **fields)
    with pytest.raises(UserError, match=f"{message}.*; save a model directory instead"):
        save(tmp_path / "model", description, params, tokenizer)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "switches", [BertSwitches(True, False, True), BertSwitches(True, None, False)]
)
def test_tokenizers_that_google_has_not(tmp_path, switches):
    description, params = make("BertForMaskedLM")
    tokenizer = WordPieceTokenizer.from_vocabulary(PIECES, switches)
    with pytest.raises(UserError, match="WordPiece with BERT's own rules alone, and the model's"):
        save(tmp_path / "model", description, params, tokenizer)
    assert not list(tmp_path.iterdir())


def test_sentencepiece_is_none_of_googles(tmp_path):
    description, params = make("BertForMaskedLM")
    tokenizer = train_sentencepiece(
        ["the cat sat on a mat"] * 9, vocab_size=30, lowercase=True, model_type="bpe"
    )
    with pytest.raises(UserError, match="WordPiece with BERT's own rules alone, and the model's"):
        save(tmp_path / "model", description, params, tokenizer)


def test_a_model_replaces_the_one_before(released, tokenizer):
    description, params = make("BertForMaskedLM")
    save(released / "bert_model.ckpt", description, params, tokenizer)
    assert same(load(find(released)).params, params)
    assert not (released / "bert_model.ckpt.meta").exists()  # the graph of the model before
    assert not list(released.parent.glob("*.partial"))


def test_a_model_in_the_working_directory(tmp_path, monkeypatch, tokenizer):
    description, params = make("BertForMaskedLM")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    save(Path(), description, params, tokenizer)
    save(Path("bert_model.ckpt"), description, params, tokenizer)
    assert same(load(find(Path())).params, params)


def test_a_write_that_fails_leaves_the_model_before(released, tokenizer):
    description, params = make("BertForMaskedLM")
    released.with_name(f".{released.name}.partial").write_text("in the way")
    with pytest.raises(UserError, match="cannot write .*; free space or give another directory"):
        save(released, description, params, tokenizer)
    assert load(find(released)).report.complete


def test_places_that_are_taken(tmp_path, tokenizer):
    description, params = make("BertForMaskedLM")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="holds something that is no model; give another"):
        save(tmp_path, description, params, tokenizer)
    with pytest.raises(UserError, match="thesis.txt is a file; give a directory"):
        save(tmp_path / "thesis.txt", description, params, tokenizer)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


# Damage


def test_a_missing_shard(released):
    (released / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(
        UserError,
        match=r"bert_model.ckpt cannot be read: .*data-00000-of-00001; No such file .*; copy",
    ):
        load(find(released))


@pytest.mark.parametrize(
    ("file", "kept"),
    [("index", 0), ("index", 1000), ("data-00000-of-00001", 0), ("data-00000-of-00001", 1000)],
)
def test_a_truncated_file(released, file, kept):
    path = released / f"bert_model.ckpt.{file}"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"bert_model.ckpt cannot be read: .*; copy its .index"):
        load(find(released))


def test_a_flipped_bit(released):
    path = released / "bert_model.ckpt.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[data.index(np.float32([1, 2, 3, 4]).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="bert_model.ckpt cannot be read: .*Checksum does not mat"):
        load(find(released))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"intermediate_size": 8},
            r"layer_0/intermediate/dense/kernel has shape \(6, 5\), .*\(6, 8\)",
        ),
        ({"num_hidden_layers": 3}, "has no tensor bert/encoder/layer_2/"),
        ({"hidden_act": "linear"}, "bert_config.json: .*hidden_act 'linear' is unknown"),
        ({"vocab_size": "7"}, "bert_config.json: .*vocab_size is '7'; it must be a int"),
    ],
)
def test_a_config_of_another_model(released, fields, message):
    (released / "bert_config.json").write_text(json.dumps({**GOOGLE_CONFIG, **fields}))
    with pytest.raises(UserError, match=message):
        load(find(released))


@pytest.mark.parametrize(
    ("content", "message"), [("{", "bert_config.json:1: not JSON"), ("{}", "lacks vocab_size")]
)
def test_a_config_that_is_none(released, content, message):
    (released / "bert_config.json").write_text(content)
    with pytest.raises(UserError, match=message):
        load(find(released))


def test_a_checkpoint_of_tensorflow_2(tmp_path):
    tensorflow = import_tensorflow()
    checkpoint = tensorflow.train.Checkpoint(model=tensorflow.Variable([1.0, 2.0]))
    checkpoint.write(str(tmp_path / "bert_model.ckpt"))
    (tmp_path / "bert_config.json").write_text(json.dumps(GOOGLE_CONFIG))
    with pytest.raises(UserError, match="no variable bert/embeddings/word_embeddings .*Flow 1"):
        load_description(find(tmp_path))


def test_without_tensorflow(released, monkeypatch):
    files = find(released)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(UserError, match="need the package tensorflow, which is not installed"):
        load(files)
