"""`config.json`: fields that are read, written again, and refused."""

import dataclasses
import json

import pytest

from bert_jax.checkpoints.config_file import (
    HeadError,
    ModelDescription,
    config_bytes,
    problem_type,
    read_config,
    write_config,
)
from bert_jax.errors import OptionError, UserError
from bert_jax.families.bert import FAMILY
from bert_jax.families.family import Family, family_names, find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.head import fields_of, with_fields
from bert_jax.tasks.base.labels import label_names
from tests.checkpoints.fields.config_json import MINIMAL_CONFIGS

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 32,
}
CONFIG = EncoderConfig(**SIZES)


@pytest.fixture
def read(tmp_path):
    """Writes fields to a file and reads them."""

    def write_and_read(**fields):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"model_type": "bert", **SIZES, **fields}))
        return read_config(path)

    return write_and_read


NULLS = dict.fromkeys(["pad_token_id", "classifier_dropout", "id2label", "problem_type"])


@pytest.mark.parametrize(
    "fields", [{}, NULLS, {"architectures": [["x"]]}, {"architectures": [None, 7]}]
)
def test_the_sizes_are_enough(read, fields):
    assert read(**fields) == ModelDescription(CONFIG, head=None)


@pytest.mark.parametrize(
    ("named", "head"),
    [
        (["BertForMaskedLM"], "masked_lm"),
        (["MyBert", "BertModel"], "encoder"),
        (["BertLMHeadModel"], None),
        (None, None),
        ("BertModel", None),
    ],
)
def test_the_head_of_a_known_class(read, named, head):
    assert read(architectures=named).head is head


def test_the_family_of_a_file_without_model_type(read):
    """A RoBERTa read as a BERT would count positions from 0."""
    fields = {"hidden_act": "gelu", "max_position_embeddings": 34, "layer_norm_eps": 1e-5}
    fields |= {"type_vocab_size": 1, "pad_token_id": 1, "model_type": None}
    described = read(architectures=["Other", "RobertaForMaskedLM"], **fields)
    assert (described.family.model_type, described.head) == ("roberta", "masked_lm")
    assert described.config.max_length == 32
    assert read(architectures=["Other"], **fields).family.model_type == "bert"


def test_labels_have_numbers(read):
    described = read(
        id2label={"1": "neutral", "0": "entailment", "2": "contradiction"},
        label2id={"entailment": 0, "neutral": 1, "contradiction": 2},
        problem_type="single_label_classification",
    )
    assert described.labels == ("entailment", "neutral", "contradiction")
    assert described.config.num_labels == 3
    assert described.problem_type == "single_label_classification"
    # As in transformers 5.24, num_labels has precedence: the names are LABEL_0, LABEL_1, …
    for count in (1, 3):
        described = read(num_labels=count, id2label={"0": "LABEL_0", "1": "LABEL_1"})
        assert (described.config.num_labels, described.labels, described.other) == (count, (), {})


@pytest.mark.parametrize(
    ("model_type", "dropout", "field"),
    [
        (
            "albert",
            {"hidden_dropout_prob": 0.0, "classifier_dropout": 0.1},
            "classifier_dropout_prob",
        ),
        (
            "distilbert",
            {"hidden_dropout_prob": 0.1, "classifier_dropout": 0.2, "qa_dropout": 0.1},
            "seq_classif_dropout",
        ),
    ],
)
def test_the_default_dropout_of_a_family(tmp_path, model_type, dropout, field):
    fields = {"model_type": model_type, **MINIMAL_CONFIGS[model_type]}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    config = fields_of(read_config(tmp_path / "config.json").config)
    assert {name: config[name] for name in dropout} == dropout
    (tmp_path / "config.json").write_text(json.dumps(fields | {field: 0.3}))
    assert read_config(tmp_path / "config.json").config.classifier_dropout == 0.3


def test_what_is_written_is_read(tmp_path):
    description = ModelDescription(
        dataclasses.replace(CONFIG, num_labels=3, classifier_dropout=0.25, hidden_act="gelu_new"),
        "classification",
        labels=("ja", "nein", "vielleicht"),
        problem_type="multi_label_classification",
        trained_length=64,
        other={"use_cache": True, "_name_or_path": "somebody/model", "\ud83d": "\ude00"},
    )
    path = tmp_path / "config.json"
    write_config(path, description)
    assert read_config(path) == description
    fields = json.loads(path.read_text())
    assert fields["id2label"] == {"0": "ja", "1": "nein", "2": "vielleicht"}
    assert fields["label2id"] == {"ja": 0, "nein": 1, "vielleicht": 2}
    assert "num_labels" not in fields  # Hugging Face counts the names
    assert fields["use_cache"] is True
    assert fields["dtype"] == "float32"
    with pytest.raises(UserError, match="1 labels for 2 outputs"):
        ModelDescription(CONFIG, "tagging", labels=("O",))
    with pytest.raises(UserError, match=r"U\+[0-9A-F]+ is half of a surrogate pair, not a cha"):
        ModelDescription(CONFIG, "tagging", labels=("\ud83d", "b"))


@pytest.mark.parametrize(
    ("count", "named"), [(2, None), (3, {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})]
)
def test_labels_without_names_are_numbered(tmp_path, count, named):
    path = tmp_path / "config.json"
    config = dataclasses.replace(CONFIG, num_labels=count)
    write_config(path, ModelDescription(config, "tagging"))
    assert json.loads(path.read_text()).get("id2label") == named
    assert read_config(path).config == config


class TypedFamily(Family):
    """The activation is a part of another key, as in T5's `feed_forward_proj`."""

    def file_fields(self):
        keys = {name: key for name, key in super().file_fields().items() if name != "hidden_act"}
        return keys | {"feed_forward": "feed_forward_proj"}

    def config(self, fields):
        activation = {"hidden_act": fields["feed_forward"].removeprefix("plain-")}
        own = {name: value for name, value in fields.items() if name != "feed_forward"}
        return super().config(own | activation)

    def fields(self, config):
        return super().fields(config) | {"feed_forward": f"plain-{config.hidden_act}"}


def test_a_family_with_other_keys_for_the_fields():
    classes = {"tagging": "TypedForTokenClassification"}
    family = TypedFamily("typed", classes, FAMILY.huggingface, sizes={})
    config = family.config(SIZES | {"feed_forward": "plain-relu"})
    assert config.hidden_act == "relu"
    written = json.loads(config_bytes(ModelDescription(config, "tagging", family=family)))
    assert written["feed_forward_proj"] == "plain-relu"
    assert "hidden_act" not in written


@pytest.mark.parametrize(
    ("head", "field", "value"),
    [("tagging", "use_crf", True), ("question_answering", "qa_head", "joint")],
)
def test_options_of_heads_that_only_bert_jax_has(tmp_path, head, field, value):
    path = tmp_path / "config.json"
    write_config(path, ModelDescription(CONFIG, head))
    assert field not in json.loads(path.read_text())
    other = with_fields(CONFIG, {field: value})
    write_config(path, ModelDescription(other, head))
    assert json.loads(path.read_text())[field] == value
    assert read_config(path).config == other
    path.write_text(path.read_text().replace('"joint"', '"both"'))
    if field == "qa_head":
        message = "config.json: qa_head is 'both'; known are independent, joint"
        with pytest.raises(OptionError, match=message) as error:
            read_config(path)
        assert (error.value.key, error.value.value) == ("qa_head", "both")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"model_type": "roberta-prelayernorm", "relative_attention": True},
            "model_type 'roberta-prelayernorm' is unknown; known are albert, .*; the nearest is "
            "roberta, which does not have relative_attention: give a model of a known family",
        ),
        (
            {"model_type": "roberta"},
            "lacks hidden_act, max_position_embeddings, type_vocab_size, layer_norm_eps, "
            "pad_token_id; give the whole roberta config",
        ),
        ({"hidden_act": "prelu"}, "hidden_act is 'prelu'; known are gelu, gelu_python, "),
        ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]; known are gelu, gelu_python, "),
        ({"hidden_size": "768"}, "hidden_size is '768'; it must be a whole number"),
        (
            {"trained_length": "64"},
            "config.json: trained_length is '64'; it must be a whole number",
        ),
        ({"vocab_size": None}, "lacks vocab_size; give"),
        ({"model_type": ["bert"]}, "model_type .'bert'. is unknown; known are albert"),
    ],
)
def test_what_is_refused(read, fields, message):
    with pytest.raises(UserError, match=message):
        read(**fields)


@pytest.mark.parametrize(
    "named",
    [
        ["a", "b"],
        {"1": "a", "2": "b"},
        {"zero": "a"},
        {"0": "a", "1": "a", "2": "b"},
        {"0": None},
    ],
)
def test_labels_without_unique_names_are_refused_where_they_are_needed(read, tmp_path, named):
    described = read(id2label=named)
    assert (described.labels, described.config.num_labels) == ((), len(named))
    with pytest.raises(UserError, match="id2label is .*; it must name the labels 0, 1, 2"):
        label_names(described)
    write_config(tmp_path / "config.json", dataclasses.replace(described, head="encoder"))
    assert json.loads((tmp_path / "config.json").read_text())["id2label"] == named
    with pytest.raises(UserError, match="problem_type is 'ranking'; known are regression"):
        problem_type(read(problem_type="ranking"))


def test_fields_that_one_head_reads_are_refused_for_this_head(tmp_path):
    fields = {**SIZES, "embedding_size": 16, "hidden_act": "gelu", "max_position_embeddings": 32}
    fields |= {"type_vocab_size": 2, "model_type": "electra", "summary_type": "last"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    described = read_config(tmp_path / "config.json")
    dataclasses.replace(described, head="tagging").make_module(Execution())
    with pytest.raises(HeadError, match="summary_type is 'last'; the head multiple_choice has on"):
        dataclasses.replace(described, head="multiple_choice").make_module(Execution())


@pytest.mark.parametrize("model_type", family_names())
def test_a_new_model_is_read_as_it_was_written(tmp_path, model_type):
    family = find_family(model_type)
    if family.sizes:
        needed = {"decoder_start_token_id"} & set(family.required_fields)
        config = family.new_config(next(iter(family.sizes)), **dict.fromkeys(needed, 2))
        head = next(iter(family.class_names))
        write_config(tmp_path / "config.json", ModelDescription(config, head, family=family))
        assert read_config(tmp_path / "config.json").config == config


def test_one_key_has_no_two_values():
    family = find_family("t5")
    assert family.new_config("tiny", hidden_dropout_prob=0.0).activation_dropout == 0
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.1}
    config = family.new_config("tiny", **rates)
    rule = (
        "model.attention_probs_dropout_prob is 0.1; files of t5 have one dropout_rate for this and "
        "model.hidden_dropout_prob=0.0: set both alike"
    )
    with pytest.raises(OptionError, match=rule):
        config_bytes(ModelDescription(config, "text_to_text", family=family))
