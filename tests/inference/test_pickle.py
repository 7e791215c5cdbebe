"""Models in other processes and in several threads."""

import concurrent.futures
import dataclasses
import multiprocessing
import pickle

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.errors import OptionError, UserError
from bert_jax.tasks.base.predictor import ExampleError

TEXTS = ["the cat sat", "a dog ran", "it was warm", "the sun sang", "a bird sang"]


@pytest.fixture(scope="module")
def saved(make_model, tmp_path_factory):
    """The directory of a saved model."""
    directory = tmp_path_factory.mktemp("saved") / "model"
    make_model("classification").save(directory)
    return directory


@pytest.fixture(scope="module")
def loaded(saved):
    """The saved model."""
    return bert_jax.load(saved)


def test_a_pickled_model_is_loaded_with_the_same_arguments(saved, monkeypatch):
    monkeypatch.chdir(saved.parent)
    model = bert_jax.load(
        "model", "tagging", seed=3, labels=["x", "y"], hidden_act="relu", precision="bfloat16"
    )
    monkeypatch.chdir("/")
    content = pickle.dumps(model)
    assert len(content) < 5000  # no arrays
    again = pickle.loads(content)
    assert again.description == model.description
    assert again.module == model.module
    assert again.report == model.report
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)


def test_what_was_changed_in_memory_is_not_pickled(make_model, loaded):
    model = loaded
    other = jax.tree.map(np.array, model.params)
    copied = dict(model.params)
    copied["classifier"] = {**copied["classifier"], "bias": np.zeros(2, np.float32)}
    for changed in (
        make_model("classification"),
        model.extend_positions(64),
        dataclasses.replace(model, params=other),
        dataclasses.replace(model, params=copied),
    ):
        with pytest.raises(UserError, match="changed in memory, and only the files of a model can"):
            pickle.dumps(changed)
    pickle.dumps(dataclasses.replace(model, params=dict(model.params)))  # a copy of the same


@pytest.mark.parametrize("change", ["other", "new", "gone"])
def test_files_that_have_changed_are_noticed(make_model, tmp_path, change):
    directory = tmp_path / "model"
    make_model("masked_lm").save(directory)
    content = pickle.dumps(bert_jax.load(directory))
    (directory / "README.md").write_text("a card")  # no file of the model
    pickle.loads(content)
    names = {"other": "vocab.txt", "new": "special_tokens_map.json", "gone": "tokenizer.json"}
    name = names[change]
    if change == "gone":
        (directory / name).unlink()
    else:
        (directory / name).write_text("{}")
    with pytest.raises(UserError, match=f"model: {name} changed since the model was loaded"):
        pickle.loads(content)


def test_errors_come_back_from_another_process():
    for error in (UserError("a"), OptionError("top_k", 0, "rule"), ExampleError("no text", 7)):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_sixteen_threads_share_a_model(loaded):
    model = loaded
    expected = [model.classify([text]) for text in TEXTS] * 16
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda text: model.classify([text]), TEXTS * 16)) == expected


def classify(model, text):
    """Runs in another process."""
    return model.classify([text])


@pytest.mark.slow
def test_a_pool_of_new_processes_predicts_like_this_one(saved):
    model = bert_jax.load(saved)
    expected = [model.classify([text]) for text in TEXTS]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(classify, [(model, text) for text in TEXTS]) == expected
        with pytest.raises(ExampleError, match="example 0: 7 is no text; give a string") as error:
            pool.apply(classify, (model, 7))
    assert error.value.index == 0
