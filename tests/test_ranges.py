"""Every option that is a number has a range, which is checked before anything is read.

Options are listed by their defaults and types: a new one without a range fails here.
"""

import argparse
import importlib
import math
import typing
from fractions import Fraction

import pytest

import bert_jax
from bert_jax.cli import VERBS
from bert_jax.cli.metrics import Measure
from bert_jax.config import TEXT_LISTS, complete_config, default_config, flat_keys, set_keys
from bert_jax.data.pretraining.options import PrepareOptions, PretrainingOptions, VocabularyOptions
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.data.pretraining.sources import SourceSpec
from bert_jax.data.readers.conll import ColumnOptions
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.generation.options import SearchOptions
from bert_jax.inference.mining_rules import MiningOptions
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.head import fields_of
from bert_jax.models.heads.multiple_choice import ChoiceHeadOptions
from bert_jax.models.heads.question_answering import QuestionAnsweringOptions
from bert_jax.planning.bench import BenchOptions
from bert_jax.planning.plan import PlanOptions
from bert_jax.serving.limits import ServerLimits
from bert_jax.sharding.distributed import ProcessOptions
from bert_jax.sharding.mesh import MeshShape
from bert_jax.tasks import task_names
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.fill_mask import FillMaskPredictOptions
from bert_jax.tasks.generate import GeneratePredictOptions
from bert_jax.tasks.question_answering.predict import AnswerOptions, AnswerPredictOptions
from bert_jax.tasks.tagging.predict import TaggingPredictOptions
from bert_jax.training_options import OptimizerOptions, TrainOptions

NAN, INF = math.nan, math.inf
# Out of every range, for any number and for a whole number.
BAD = (NAN, INF, -INF, -7, 1e39, True, "7")
BAD_WHOLE = (*BAD, -0.5, 1.5, 10**12)
# Columns are counted from the end, too; scores may have any sign.
ANY_SIGN = {
    *("data.word_column", "data.tag_column", "word_column", "tag_column", "data.label_range"),
    *("min_score", "max_score", "length_penalty", "generation.length_penalty"),
}


def bad_values(name: str, *, whole: bool) -> list:
    return [
        value for value in (BAD_WHOLE if whole else BAD) if not (name in ANY_SIGN and value == -7)
    ]


def is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers_among(task: str) -> dict:
    """The keys of a task that are numbers, or lists of numbers, with an example of the value."""
    fields = {f"model.{name}": value for name, value in fields_of(EncoderConfig()).items()}
    examples = fields | {"model.classifier_dropout": 0.1}
    examples |= {"train.seeds": 1, "data.label_range": 1.0}
    keys = flat_keys(default_config(task))
    actual = {key: examples.get(key, value) for key, value in keys if key not in TEXT_LISTS}
    return {key: value for key, value in actual.items() if is_number(value) or value == ()}


# Each key with one of the tasks that have it, and an example of its value.
KEYS = {key: (task, value) for task in task_names() for key, value in numbers_among(task).items()}


def test_the_keys_are_complete():
    assert {
        "data.margin", "data.mask_fraction", "data.tag_column", "data.window_step",
        "model.layer_norm_eps", "optimizer.beta2", "seed", "tokenizer.train_characters",
        "train.keep_checkpoints", "train.seeds", "data.label_range", "mesh.fsdp",
    } <= set(KEYS)  # fmt: skip
    assert len(KEYS) > 55
    for task in task_names():
        Experiment.from_config(default_config(task))  # the defaults are in their ranges


def refusal(key: str, value) -> str:
    """The error for a value of a key; "" if it is accepted."""
    config = default_config(KEYS[key][0])
    try:
        Experiment.from_config(set_keys(config, {key: value}, where="test"))
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("key", KEYS)
def test_a_key_refuses_values_out_of_its_range(key):
    _, example = KEYS[key]
    is_list = key in ("train.seeds", "data.label_range")
    for value in bad_values(key, whole=isinstance(example, int)):
        message = refusal(key, (0, value) if is_list else value)
        assert key in message, value
        assert "\n" not in message


@pytest.mark.parametrize(
    ("task", "key", "value", "message"),
    [
        ("pretraining", "optimizer.beta2", 1.5, "it must be at least 0 and below 1"),
        ("pretraining", "optimizer.epsilon", 0.0, "it must be above 0"),
        ("pretraining", "train.checkpoint_every", -5, "it must be at least 0"),
        ("pretraining", "train.keep_checkpoints", 0, "it must be at least 1"),
        ("pretraining", "train.steps", 10**11, "it must be at most 2,147,483,647"),
        ("pretraining", "data.max_predictions", 1000, "it must be at most 128"),
        ("pretraining", "model.layer_norm_eps", NAN, "it must be a number, above 0 and at most 1"),
        ("pretraining", "model.num_hidden_layers", 10**9, "it must be at most 1,000"),
        ("pretraining", "model.hidden_dropout_prob", 1.0, "it must be at least 0 and below 1"),
        ("pretraining", "tokenizer.vocab_size", 0, "it must be at least 1"),
        ("pretraining", "seed", 2**32, "it must be at most 4,294,967,295"),
        ("question_answering", "data.window_step", 0, "it must be at least 1"),
        ("similarity", "data.margin", 2.5, "it must be above 0 and at most 2"),
        ("similarity", "data.scale", 0.0, "it must be above 0"),
        ("classification", "data.limit", -1, "it must be at least 0"),
        ("classification", "data.length", 2, "it must be at least 3"),
    ],
)
def test_the_text_of_an_error(task, key, value, message):
    section, _, name = key.rpartition(".")
    keys = {section: {name: value}} if section else {name: value}
    with pytest.raises(UserError) as error:
        Experiment.from_config(complete_config({"task": task, **keys}, where="test"))
    assert str(error.value) == f"{key} is {value!r}; {message}"


def test_epochs_beyond_the_counters():
    with pytest.raises(
        UserError, match="^train.epochs is 1.*; that is 40,000,000,000 steps, and 2,147"
    ):
        TrainOptions(steps=0, epochs=1e10).resolved(100)


# Option classes, with the fields that have no default.
CLASSES = {
    MiningOptions: {},
    ServerLimits: {},
    AnswerOptions: {},
    BatchOptions: {},
    BenchOptions: {"work": "train"},
    ColumnOptions: {},
    ChoiceHeadOptions: {},
    EncoderConfig: {},
    QuestionAnsweringOptions: {},
    Execution: {},
    MeshShape: {},
    Measure: {"judgements": {}, "metrics": (), "relevant_from": 1},
    OptimizerOptions: {},
    PlanOptions: {},
    AnswerPredictOptions: {},
    FillMaskPredictOptions: {},
    GeneratePredictOptions: {},
    SearchOptions: {"temperature": 1.0},
    TaggingPredictOptions: {},
    PrepareOptions: {"sources": (SourceSpec("text:a"),)},
    PretrainingOptions: {},
    ProcessOptions: {"coordinator": "host:80", "processes": 2, "process_id": 0},
    TrainOptions: {},
    VocabularyOptions: {},
}
# Set by code, not by users.
INTERNAL = {(PrepareOptions, "seed"), (PretrainingOptions, "seed")}


def numbers_of(cls: type) -> dict[str, bool]:
    """The fields of a class that are numbers, and whether they are whole numbers."""
    numbers = {}
    for name, kind in typing.get_type_hints(cls).items():
        kinds = {kind, *typing.get_args(kind)}
        is_option = typing.get_origin(kind) is not tuple and (cls, name) not in INTERNAL
        if is_option and kinds & {int, float}:
            numbers[name] = not kinds & {float, Fraction}
    return numbers


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_python_option_refuses_values_out_of_its_range(cls):
    cls(**CLASSES[cls])
    assert numbers_of(cls)
    for name, whole in numbers_of(cls).items():
        # Any threshold is one: infinity means never, or always.
        bad = (NAN, True, "7") if name == "null_threshold" else bad_values(name, whole=whole)
        for value in bad:
            with pytest.raises(UserError, match=rf"\b{name}\b"):
                cls(**{**CLASSES[cls], name: value})


# Flags that are numbers and arguments of a function.
ARGUMENTS = {("prepare", "workers"), ("prepare", "limit"), ("prepare", "show"),
             ("convert", "positions"), ("convert", "attention_window"), ("index", "passages"),
             ("serve", "port")}  # fmt: skip


def test_every_flag_that_is_a_number_belongs_to_an_option_with_a_range(tmp_path):
    known = {name for cls in CLASSES for name in numbers_of(cls)}
    for verb in VERBS:
        parser = argparse.ArgumentParser()
        parser.error = lambda message: None
        importlib.import_module(f"bert_jax.cli.{verb}").add_arguments(parser)
        for action in parser._actions:
            if action.type in (None, str) or (verb, action.dest) in ARGUMENTS:
                continue
            if action.type.__name__ in ("int", "float", "teraflops"):
                assert action.dest in known, (verb, action.dest)
    options = PrepareOptions((SourceSpec("text:a"),))
    for name in ("workers", "limit"):
        for value in bad_values(name, whole=True):
            with pytest.raises(UserError, match=f"^{name} is "):
                prepare(options, tmp_path / "corpus", **{name: value})


def test_methods_of_a_model_refuse_values_out_of_range(base_model):
    model = bert_jax.load(base_model, task="question_answering")
    calls = {
        "batch_size": [
            lambda value: model.embed(["a"], batch_size=value),
            lambda value: model.hidden_states(["a"], batch_size=value),
            lambda value: model.attentions(["a"], batch_size=value),
            lambda value: model.similarity(["a"], batch_size=value),
            lambda value: model.search("a", ["a"], batch_size=value),
        ],
        "max_length": [lambda value: model.embed(["a"], max_length=value)],
        "top_k": [
            lambda value: model.search("a", ["a"], value),
            lambda value: model.answer("a", "a", value),
        ],
        "layers": [
            lambda value: model.hidden_states(["a"], layers=(value,)),
            lambda value: model.attentions(["a"], layers=(value,)),
        ],
        "length": [model.extend_positions],
    }
    for name, functions in calls.items():
        for function in functions:
            for value in BAD_WHOLE:
                with pytest.raises(UserError, match=f"^{name} is |^layer .* does not exist"):
                    function(value)
    for value in (NAN, True, "7"):
        with pytest.raises(UserError, match="^null_threshold is "):
            model.answer("a", "a", null_threshold=value)
    with pytest.raises(UserError, match="^the words are one string, 'covid'; give a list of"):
        model.add_words("covid")
