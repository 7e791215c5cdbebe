"""Cosines of texts, in pairs and with each other."""

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference import vectors as searching
from bert_jax.inference.engine import predict_examples
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.models.vectors import Normalize
from bert_jax.tasks.base.predictor import ExampleError
from bert_jax.tasks.embed import VectorPredictOptions
from bert_jax.tasks.similarity.predict import Match, PairPredictor

TEXTS = ["the cat sat on the mat .", "a dog", "it was warm .", "the sea was low"]


def similarities(model, pairs, pooling=None, advance=lambda count: None, **sizes):
    """The cosine of each pair."""
    predictor = PairPredictor(model, VectorPredictOptions(**sizes, pooling=pooling))
    predictions = predict_examples(predictor, pairs, advance=advance)
    return (prediction.similarity for prediction in predictions)


def by_hand(model, first, second, pooling="mean"):
    u, v = model.embed([first, second], pooling=pooling).astype(np.float64)
    return u @ v / (np.linalg.norm(u) * np.linalg.norm(v))


def test_every_text_with_every_other(model):
    actual = model.similarity(TEXTS, TEXTS[:3])
    assert actual.shape == (4, 3)
    assert actual.dtype == np.float32
    for (row, text), (column, second) in itertools.product(enumerate(TEXTS), enumerate(TEXTS[:3])):
        assert actual[row, column] == pytest.approx(by_hand(model, text, second), abs=1e-5)
    itself = model.similarity(TEXTS)
    np.testing.assert_allclose(np.diag(itself), 1, atol=1e-6)
    assert (np.abs(itself) <= 1).all()
    np.testing.assert_allclose(itself, itself.T, atol=1e-6)
    assert model.similarity([], TEXTS).shape == (0, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pooling",
    ["mean", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cls", "max", "pooler"))],
)
def test_pairs(model, pooling):
    pairs = list(itertools.permutations(TEXTS, 2))
    actual = list(similarities(model, pairs, pooling=pooling, batch_size=3))
    expected = [by_hand(model, *pair, pooling) for pair in pairs]
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert all(isinstance(value, float) for value in actual)


def test_similarity_and_pooling_of_the_files(model):
    vectors = TextVectors(poolings=("cls",), modules=(Normalize(),), similarity="dot")
    description = dataclasses.replace(model.description, stored_vectors=vectors)
    trained = dataclasses.replace(model, description=description)
    (actual,) = similarities(trained, [(TEXTS[0], TEXTS[1])])
    assert actual == pytest.approx(by_hand(model, TEXTS[0], TEXTS[1], "cls"), abs=1e-6)
    (mean,) = similarities(trained, [(TEXTS[0], TEXTS[1])], pooling="mean")
    assert mean == pytest.approx(by_hand(model, TEXTS[0], TEXTS[1]), abs=1e-6)
    every = trained.similarity(TEXTS)
    assert every[0, 1] == pytest.approx(actual, abs=1e-6)
    assert trained.search(TEXTS[0], TEXTS[1:2])[0].score == pytest.approx(actual, abs=1e-6)


def test_search_and_similarity(model):
    actual = model.search("a dog", iter(TEXTS), top_k=2)
    assert actual[0].index == 1
    assert actual[0].text == "a dog"
    assert actual[0].score == pytest.approx(1)
    rest = {index: by_hand(model, "a dog", text) for index, text in enumerate(TEXTS)}
    best = max(set(rest) - {1}, key=rest.get)
    assert (actual[1].index, actual[1].text) == (best, TEXTS[best])
    assert len(model.search("sun", TEXTS)) == 4
    assert model.search("sun", []) == []
    twice = model.search("sun", ["sea", "sun", "sun"])
    assert [match.index for match in twice] == [1, 2, 0]
    assert isinstance(twice[0], Match)


def test_many_texts_are_better_embedded_once(model, monkeypatch, capsys):
    monkeypatch.setattr(searching, "_MANY_TEXTS", 4)
    searching._say_index.cache_clear()
    model.search("sun", TEXTS[:3])
    assert capsys.readouterr().err == ""
    model.search("sun", TEXTS)
    model.search("sea", TEXTS)  # it is said once
    assert capsys.readouterr().err == (
        "search embeds its texts for each query; index = model.index(texts), with path= on the "
        "disk, embeds them once, and index.search(queries) takes many queries\n"
    )


def test_refused_texts(model):
    for one, kind in ((None, "NoneType, None"), (float("nan"), "float, nan"), (7, "int, 7")):
        with pytest.raises(UserError, match=f"the texts are one {kind}; give a list of strings"):
            model.embed(one)
    with pytest.raises(UserError, match="the texts are one string, 'a dog'; give a list"):
        model.similarity("a dog", TEXTS)
    with pytest.raises(ExampleError, match="example 1: 7 is no text; give a string"):
        model.similarity(["a dog", 7])
    with pytest.raises(UserError, match="top_k is 0"):
        model.search("a dog", TEXTS, top_k=0)
    with pytest.raises(ExampleError, match="is not a pair of texts; give two strings") as caught:
        list(similarities(model, [("a", "b"), ("a", None)]))
    assert caught.value.index == 1
    with pytest.raises(UserError, match="pooling is 'middle'; known are"):
        similarities(model, [("a", "b")], pooling="middle")


CONTENT = "sentence1\tsentence2\tscore\nthe cat\tthe dog\t3.5\na\ta\t5\n\tlow\t0\n"


def test_pairs_of_a_file(predict_file, model):
    actual = predict_file(model, CONTENT, "in.tsv", task="similarity")
    records = [json.loads(line) for line in actual.splitlines()]
    assert [record["score"] for record in records] == ["3.5", "5", "0"]
    vectors = model.embed(["the cat", "the dog", "", "low"], normalize=True)
    assert records[0]["similarity"] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-6)
    assert records[1]["similarity"] == pytest.approx(1)
    assert records[2]["similarity"] == pytest.approx(float(vectors[2] @ vectors[3]), abs=1e-6)
    for digits in re.findall(r'"similarity": (.*)}', actual):  # those of a float32, no more
        assert digits == str(float(str(np.float32(digits))))
        assert len(digits.lstrip("-0.")) <= 9


def test_the_pooling_of_a_file(predict_file, model):
    actual = predict_file(model, CONTENT, "in.tsv", task="similarity", pooling="cls")
    first, second = model.embed(["the cat", "the dog"], "cls", normalize=True)
    record = json.loads(actual.splitlines()[0])
    assert record["similarity"] == pytest.approx(float(np.dot(first, second)), abs=1e-6)


def test_one_text_is_no_pair(predict_file, model, listing):
    with pytest.raises(UserError, match="in.txt:1: there is no second text"):
        predict_file(model, "the cat\n", "in.txt", task="similarity")
    assert listing() == {"in.txt"}
