"""The number of tokens that a model's files give is the default length of every task."""

import dataclasses
import functools

import numpy as np
import pytest

from bert_jax.checkpoints.config_file import config_bytes
from bert_jax.config import complete_config
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.question_answering.predict import AnswerPredictOptions, SpanPredictor
from bert_jax.tasks.tagging.predict import TaggingPredictOptions, TagPredictor

LONG = "the cat sat on the mat . " * 4


@pytest.fixture(scope="module")
def limited(make_model):
    """A model of 32 positions whose tokenizer says `length`."""

    def make(head, length=9, side="right"):
        model = make_model(head)
        description = dataclasses.replace(
            model.tokenizer.description, model_max_length=length, truncation_side=side
        )
        return dataclasses.replace(model, tokenizer=model.tokenizer.with_description(description))

    return make


@pytest.mark.parametrize(
    ("stored", "given", "limit"),
    [(None, None, 32), (9, None, 9), (512, None, 32), (9, 20, 20), (9, 32, 32), (9, 5, 5)],
)
def test_the_smallest_limit_unless_another_is_given(tiny_config, stored, given, limit):
    assert BatchOptions(max_length=given).limit(tiny_config, stored) == limit


@pytest.mark.slow
def test_texts_are_cut_there_and_counted(limited, capsys):
    model = limited("pretraining")
    embed = functools.partial(model.embed, pooling="mean")
    for method in (embed, model.hidden_states, model.attentions):
        method([LONG, "the cat"])
        assert capsys.readouterr().err == "1 of 2 texts were longer than 9 tokens: cut\n"
    limited("multiple_choice").choose(LONG, ["the cat", "a dog"])
    assert capsys.readouterr().err == "2 of 2 texts were longer than 9 tokens: cut\n"
    assert len(model.hidden_states([LONG])[0].tokens) == 9
    assert len(model.hidden_states([LONG], max_length=32)[0].tokens) == 30
    np.testing.assert_array_equal(model.embed([LONG]), model.embed([LONG], max_length=9))
    with pytest.raises(UserError, match="the text has 31 tokens, the model takes 9; shorten it"):
        model.fill_mask(f"[MASK] {LONG}")


def test_rows_that_are_longer_than_those_of_the_training_are_counted(make_model, capsys):
    model = make_model("classification")
    described = dataclasses.replace(model.description, trained_length=9)
    short = dataclasses.replace(model, description=described)
    short.classify([LONG, "the cat"])
    assert capsys.readouterr().err == (
        "rows with more than the 9 tokens of the training: 1; the maximum length 9 predicts as the "
        "training\n"
    )
    short.classify([LONG, "the cat"], max_length=30)
    assert capsys.readouterr().err == ""
    assert b'"trained_length": 9' in config_bytes(described)
    assert b"trained_length" not in config_bytes(model.description)


@pytest.mark.slow
def test_vectors_have_the_limit_of_sentence_transformers(limited, capsys):
    model = limited("encoder")
    for length in (5, 20):  # which has precedence there
        vectors = TextVectors(max_length=length)
        described = dataclasses.replace(model.description, stored_vectors=vectors)
        short = dataclasses.replace(model, description=described)
        expected = model.embed([LONG], "mean", max_length=length)
        np.testing.assert_array_equal(short.embed([LONG]), expected)
        line = f"1 of 1 texts were longer than {length} tokens: cut\n"
        assert capsys.readouterr().err == 2 * line  # the expected vectors, too
        assert short.similarity([LONG]).shape == (1, 1)
        assert f"longer than {length} tokens" in capsys.readouterr().err
        assert len(short.hidden_states([LONG])[0].tokens) == 9
        capsys.readouterr()
    longer = short.extend_positions(40)
    longer.embed(["cat " * 99])
    assert "longer than 40 tokens" in capsys.readouterr().err


def test_windows_have_this_length(limited):
    tagger = TagPredictor(limited("tagging"), TaggingPredictOptions())
    (encoded,) = tagger.encode([LONG])
    assert max(map(len, encoded.rows)) == 9
    model = limited("question_answering")
    options = AnswerPredictOptions(question_length=2)
    assert SpanPredictor(model, options).limit == 9
    assert SpanPredictor(model, dataclasses.replace(options, max_length=20)).limit == 20


def test_a_text_is_cut_on_its_side(limited):
    """However long it is."""
    model = limited("encoder", side="left")
    for text in (LONG, LONG * 50):
        (states,) = model.hidden_states([f"{text} a sea"])
        assert states.tokens == ["[CLS]", *["sat", "on", "the", "mat", ".", "a", "sea"], "[SEP]"]


@pytest.mark.slow
@pytest.mark.parametrize(("given", "length"), [(0, 9), (20, 20)])
def test_a_training_and_its_evaluation(limited, tmp_path, capsys, given, length):
    limited("encoder").save(tmp_path / "base")
    table = tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + f"{LONG}\ta\nthe cat\tb\n" * 4)
    data = {"train": str(table), "validation": (str(table),), "length": given}
    keys = {"task": "classification", "init_from": str(tmp_path / "base"), "data": data}
    steps = {"steps": 2, "eval_every": 1, "global_batch_size": 4, "export": "best"}
    config = complete_config(keys | {"train": steps}, where="test")
    task = Experiment.from_config(config).task
    assert task.options.length == length
    assert f"; 4 of 8 texts cut to {length}" in "\n".join(task.data_summary.lines())
    # Of three evaluations, the first one reports it.
    Experiment.from_config(config).train(tmp_path / "run")
    line = f"4 of 8 texts were longer than {length} tokens: cut\n"
    assert capsys.readouterr().err.count(line) == 1
