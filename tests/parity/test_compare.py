"""Our models against Hugging Face's own, and every cause of a difference, provoked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.errors import UserError
from bert_jax.families.bert import FAMILY as BERT
from bert_jax.inference.loading import load
from bert_jax.models.config import EncoderConfig
from bert_jax.parity.compare import compare, compare_values
from bert_jax.parity.inputs import ParityInput
from bert_jax.parity.report import Values, named_values

MULTI_LABEL = {"num_labels": 5, "problem_type": "multi_label_classification"}
# Every head and every kind of loss, in shapes that no released model has.
MODELS = [
    ("BertModel", {"hidden_act": "gelu_new"}),
    ("BertForPreTraining", {"type_vocab_size": 1}),
    ("BertForMaskedLM", {"tie_word_embeddings": False}),
    ("BertForNextSentencePrediction", {"hidden_act": "relu", "layer_norm_eps": 1e-5}),
    ("BertForSequenceClassification", MULTI_LABEL),
    ("BertForSequenceClassification", {"num_labels": 2, "problem_type": "regression"}),
    ("BertForTokenClassification", {"num_labels": 5, "num_attention_heads": 2}),
    ("BertForQuestionAnswering", {"type_vocab_size": 3, "intermediate_size": 1}),
    ("BertForMultipleChoice", {"hidden_act": "gelu_pytorch_tanh", "num_hidden_layers": 1}),
    # As new models are: choices have almost the same score, gradients are almost zero.
    ("BertForMultipleChoice", {"noise": 0.0}),
]
BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 3,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "noise": 0.0,
}
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
WORDS = "bert.embeddings.word_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"

ModelMaker = Callable[..., Path]


@pytest.fixture(scope="module")
def make_model(tmp_path_factory, pieces) -> ModelMaker:
    """Writes a random model of an odd shape by transformers; arguments are fields of its config.

    `noise` is added to all parameters, so that no bias is 0 and no scale 1.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(architecture: str, *, noise: float = 0.1, **fields) -> Path:
        odd = {
            "vocab_size": len(pieces) + 3,
            "hidden_size": 18,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 20,
            "max_position_embeddings": 33,
        }
        torch.manual_seed(7)
        config = transformers.BertConfig(**odd | fields)
        model = getattr(transformers, architecture)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(noise * torch.randn_like(parameter))
        directory = tmp_path_factory.mktemp(architecture)
        model.save_pretrained(directory)
        (directory / "vocab.txt").write_text("\n".join(pieces) + "\n")
        return directory

    return make


@pytest.fixture(scope="module")
def pretraining(make_model) -> Path:
    return make_model("BertForPreTraining")


@pytest.fixture
def changed(tmp_path, pretraining) -> Callable[..., Path]:
    """A copy of the model with other fields in its config, or with tensors put through a change."""

    def copy(change: Callable[[dict[str, np.ndarray]], None] | None = None, **fields) -> Path:
        directory = tmp_path / "changed"
        shutil.copytree(pretraining, directory)
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | fields))
        if change is not None:
            tensors = load_file(directory / "model.safetensors")
            change(tensors)
            save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        return directory

    return copy


# --- Agreement ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "fields"), MODELS, ids=str)
def test_models_agree_also_after_save(architecture, fields, make_model, tmp_path):
    directory = make_model(architecture, **fields)
    load(directory).save(tmp_path / "saved")
    report = compare(directory, reference=tmp_path / "saved")
    assert report.agrees, report.as_table()
    assert report.architecture == architecture
    assert report.equal_tensors[0] == report.equal_tensors[1] > 0
    assert (list(report.inputs), report.causes) == (["short", "padded", "full"], ())


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
def test_a_model_of_base_width_agrees(make_model):
    directory = make_model("BertForPreTraining", **BASE)
    report = compare(directory)
    shutil.rmtree(directory)  # pytest would keep the quarter gigabyte of three runs
    assert report.agrees, report.as_table()


@pytest.mark.slow
def test_the_table_has_every_layer_head_loss_and_gradient(pretraining):
    report = compare(pretraining)
    names = {(entry.quantity, entry.name) for entry in report.differences}
    for name in ("embeddings", "layer 0", "layer 1"):
        assert ("hidden states", name) in names
    for name in ("prediction_logits", "seq_relationship_logits"):
        assert ("logits", name) in names
    for name in ("masked_lm", "next_sentence", "sum"):
        assert ("loss", name) in names
    tensors = load_file(pretraining / "model.safetensors")
    gradients = {name for quantity, name in names if quantity == "gradient"}
    # A tied decoder is not in the file, and its bias has one name.
    assert gradients == set(tensors) - {"cls.predictions.decoder.bias", DECODER}
    assert "agrees:" in report.as_table()
    json.dumps(report.as_dict(), allow_nan=False)


@pytest.mark.slow
def test_nothing_is_printed_and_the_settings_of_transformers_stay(pretraining, capfd):
    logging = pytest.importorskip("transformers").utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    compare(pretraining)
    out, err = capfd.readouterr()
    (line,) = err.splitlines()  # of loading: the files of this test have a larger table
    assert out == ""
    assert "the tokenizer has 40 ids, and the model's table 43 rows" in line
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


# --- Causes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_wrong_fields_of_the_config_are_named(changed, pretraining):
    report = compare(changed(hidden_act="relu", layer_norm_eps=1e-5), reference=pretraining)
    assert not report.agrees
    assert report.causes == (
        "epsilon: config.json of the model says 1e-05, the reference computes with 1e-12 "
        "(layer_norm_eps)",
        "activation: config.json of the model says relu, the reference computes with gelu "
        "(hidden_act)",
    )
    assert report.equal_tensors[0] == report.equal_tensors[1]
    assert report.as_table().endswith(f"likely cause: {report.causes[-1]}")


def transpose(tensors: dict[str, np.ndarray]) -> None:
    tensors[QUERY] = np.ascontiguousarray(tensors[QUERY].T)


def halve(tensors: dict[str, np.ndarray]) -> None:
    tensors.update({name: tensor.astype(np.float16) for name, tensor in tensors.items()})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "fields", "expected", "first"),
    [
        (transpose, {}, f"transposed kernel: {QUERY}", ("hidden states", "layer 1")),
        (
            halve,
            {"dtype": "float16"},
            "precision: the model's file holds float16; rounded are ",
            ("hidden states", "embeddings"),
        ),
    ],
)
def test_a_change_of_the_weights_is_named(change, fields, expected, first, changed, pretraining):
    directory = changed(change, **fields)
    report = compare(directory, reference=pretraining)
    (cause,) = report.causes
    assert cause.startswith(expected)
    wrong = next(entry for entry in report.differences if not entry.agrees)
    assert (wrong.quantity, wrong.name) == first
    assert report.equal_tensors[0] < report.equal_tensors[1]
    if change is halve:  # by itself, the file is read alike by both
        assert compare(directory).agrees


@pytest.mark.slow
def test_a_tie_that_only_the_gradients_miss_is_named(changed, pretraining):
    """The decoder has the same numbers, but would be trained by itself."""

    def untie(tensors: dict[str, np.ndarray]) -> None:
        tensors[DECODER] = tensors[WORDS].copy()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()

    report = compare(changed(untie, tie_word_embeddings=False), reference=pretraining)
    wrong = {entry.name for entry in report.differences if not entry.agrees}
    assert wrong == {WORDS, DECODER}
    (cause,) = report.causes
    assert cause.startswith("missing tie")


@pytest.mark.slow
def test_weights_that_amplify_rounding_are_named(make_model):
    report = compare(make_model("BertForNextSentencePrediction", noise=4.0, hidden_act="silu"))
    assert not report.agrees
    (cause,) = report.causes
    assert cause.startswith("rounding: ")


# --- What cannot be compared -------------------------------------------------------------------


CLASSIFIER, SINGLE = "BertForSequenceClassification", "single_label_classification"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "fields", "other", "message"),
    [
        ("BertForPreTraining", {}, {"intermediate_size": 8},
         r"intermediate\.dense\.bias is \(20,\) in .* and \(8,\) in .*; give two copies"),
        ("BertForPreTraining", {}, {"num_hidden_layers": 3},
         r"encoder\.layer\.2\..* is missing in .* and \(18,\) in"),
        (CLASSIFIER, MULTI_LABEL, MULTI_LABEL | {"problem_type": SINGLE},
         "problem_type is multi_label.* and single_label"),
    ],
)  # fmt: skip
def test_two_models_are_refused(make_model, architecture, fields, other, message):
    pair = (make_model(architecture, **each) for each in (fields, other))
    with pytest.raises(UserError, match=message):
        compare(*pair)


@pytest.mark.slow
def test_a_missing_head_is_not_compared(make_model, tmp_path):
    bare = make_model("BertModel")
    config = json.loads((bare / "config.json").read_text())
    shutil.copytree(bare, tmp_path / "renamed")
    (tmp_path / "renamed/config.json").write_text(
        json.dumps(config | {"architectures": ["BertForTokenClassification"]})
    )
    with pytest.raises(UserError, match=r"renamed lacks classifier/bias, classifier/kernel, so"):
        compare(tmp_path / "renamed")
    tagger = make_model("BertForTokenClassification")
    with pytest.raises(UserError, match=r"to transformers, classifier\.bias is missing \(2 tens"):
        compare(tagger, reference=bare)


@pytest.mark.slow
def test_what_transformers_cannot_load_is_one_line(pretraining, tmp_path):
    shutil.copy(pretraining / "config.json", tmp_path)
    with pytest.raises(UserError, match="transformers cannot load .* as BertForPreT") as caught:
        compare(pretraining, reference=tmp_path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("give --reference a directory that it loads")


# --- What is compared, by literal numbers -------------------------------------------------------

SPAN = ParityInput("short", "", {"attention_mask": np.array([[1, 1, 0]], np.int32)}, {})
CONFIG = EncoderConfig(pad_token_id=1)


ZERO = np.zeros((1, 3), np.float32)


def computed(**changes) -> Values:
    fields = {
        "states": np.zeros((2, 1, 3, 4), np.float32),
        "logits": {"start_logits": ZERO, "end_logits": ZERO},
        "losses": {"span": 1.0},
        "gradients": {WORDS: np.ones((3, 4), np.float32)},
    }
    return named_values(**fields | changes)


def wrong(head: str, result: Values, expected: Values) -> list[tuple[str, str]]:
    entries = compare_values(BERT, head, CONFIG, SPAN, result, expected)
    return [(entry.quantity, entry.name) for entry in entries if not entry.agrees]


def ones_but(row: int, shape: tuple[int, ...]) -> np.ndarray:
    array = np.ones(shape, np.float32)
    array[row] = 0
    return array


def state_at(token: int) -> np.ndarray:
    states = np.zeros((2, 1, 3, 4), np.float32)
    states[1, 0, token, 3] = 1e-4
    return states


# The gradients of the words, 0 for padding or for another word.
WITHOUT_PADDING, WITHOUT_WORD = ones_but(1, (3, 4)), ones_but(2, (3, 4))
LAST_LOGIT = {"start_logits": np.array([[0, 0, 1]]), "end_logits": ZERO}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"states": state_at(2)}, []),  # padding
        ({"states": state_at(1)}, [("hidden states", "layer 0")]),
        ({"logits": LAST_LOGIT}, [("logits", "start_logits")]),  # the loss reads padding
        ({"losses": {"span": 1.001}}, [("loss", "span")]),
        ({"gradients": {WORDS: 1.001 * WITHOUT_PADDING}}, [("gradient", WORDS)]),
        ({"gradients": {WORDS: WITHOUT_WORD}}, [("gradient", WORDS)]),
        # PyTorch computes no gradient of the embedding of padding.
        ({"gradients": {WORDS: np.ones((3, 4), np.float32)}}, []),
    ],
)
def test_what_is_compared_of_a_span(changes, expected):
    reference = computed(gradients={WORDS: WITHOUT_PADDING})
    values = computed(**{"gradients": {WORDS: WITHOUT_PADDING}, **changes})
    assert wrong("question_answering", values, reference) == expected


def test_what_is_compared_of_masked_words():
    words = {"logits": np.array([[[0.0], [0.0], [1.0]]])}  # padding, which the loss ignores
    none = {"logits": np.zeros((1, 3, 1))}
    assert wrong("masked_lm", computed(logits=words), computed(logits=none)) == []
    both = {WORDS: np.ones((3, 4), np.float32)}
    padding = {WORDS: WITHOUT_PADDING}  # compared, since the decoder is tied
    sides = (computed(logits={}, gradients=each) for each in (padding, both))
    assert wrong("masked_lm", *sides) == [("gradient", WORDS)]
    more = both | {DECODER: np.ones((3, 4), np.float32)}  # of one side alone: 0 on the opposite
    for gradients, reference in ((both, more), (more, both)):
        sides = (computed(logits={}, gradients=each) for each in (gradients, reference))
        assert wrong("masked_lm", *sides) == [("gradient", DECODER)]
