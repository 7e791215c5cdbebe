"""Requests with different options share an engine, and are computed together."""

import dataclasses

import pytest

from bert_jax.data.examples import Question
from bert_jax.metrics.entities import convert
from bert_jax.serving.limits import ServerLimits
from bert_jax.serving.models import Models


@pytest.fixture
def models(make_model):
    """The models of a server with one model."""

    def make(head):
        model = make_model(head)
        return model, Models({"tiny": model}, ServerLimits(batch_size=4))

    return make


def together(models, task, example, *options):
    """The rows of the example for each request, and their predictions from one call."""
    (served,) = models.served
    chosen = [models.task_engine(served, task, *each) for each in options]
    encoded = [each.encoder.encode([example])[0] for each in chosen]
    (engine,) = {each.engine for each in chosen}
    return encoded, engine.predict_encoded([example] * len(chosen), encoded)


def test_words_for_masks(models):
    model, served = models("masked_lm")
    text = "the [MASK] sat"
    _, (few, many) = together(served, "fill_mask", text, ({"top_k": 2},), ({"top_k": 7},))
    (expected,) = model.fill_mask([text], 7)
    for masks, count in ((few, 2), (many, 7)):
        assert [word.token for word in masks[0]] == [word.token for word in expected[:count]]
    # 33 words need another program.
    other = served.task_engine(served.served[0], "fill_mask", {"top_k": 33}).engine
    assert other is not served.task_engine(served.served[0], "fill_mask", {"top_k": 32}).engine


def test_answers(models):
    """Also with rows of another length; as `LoadedModel.answer` finds them."""
    _, served = models("question_answering")
    question = Question("who sat ?", "the cat sat on the mat and the dog ran to the sea")
    encoded, predictions = together(
        served,
        "question_answering",
        question,
        ({"top_k": 3},),
        ({}, 12),
        ({"window_step": 2, "question_length": 1, "null_threshold": -1e9},),
    )
    assert [max(map(len, each.rows)) <= 12 for each in encoded] == [False, True, False]
    assert encoded[2].counts.cut == 1
    assert [len(each.answers()) for each in predictions] == [3, 1, 1]
    assert [each.answers()[0].text == "" for each in predictions] == [False, False, True]


def test_weights_of_words(models):
    _, served = models("masked_lm")
    _, (few, every) = together(
        served, "sparse_vectors", "the cat sat", ({"max_active_dims": 3},), ({},)
    )
    assert few.tokens == every.tokens[:3]
    assert len(every.tokens) > 3


def test_tags_in_a_scheme(make_model):
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    model = make_model("tagging", num_labels=len(labels))
    description = dataclasses.replace(model.description, labels=labels)
    model = dataclasses.replace(model, description=description)
    served = Models({"tiny": model}, ServerLimits(batch_size=4))
    schemes = ("", "bioes", "iob1")
    options = ({"scheme": scheme} for scheme in schemes)
    _, made = together(served, "tagging", "the cat sat on a mat", *((each,) for each in options))
    assert [entity.words for entity in made[0].entities]
    own = made[0].tags
    assert [each.tags for each in made] == [own, *(tuple(convert(own, s)) for s in schemes[1:])]
