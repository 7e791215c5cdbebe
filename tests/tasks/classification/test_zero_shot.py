"""Candidate labels, chosen by a model of natural language inference."""

import dataclasses

import numpy as np
import pytest

from bert_jax.errors import OptionError, UserError

NLI = ("contradiction", "neutral", "entailment")
TEXTS = ["the cat sat on the mat .", "a dog ran to the sea ."]
LABELS = ["cat", "dog", "sea"]
TEMPLATE = "it is the {} ."


@pytest.fixture(scope="module")
def nli(make_model):
    model = make_model("classification", num_labels=3)
    return dataclasses.replace(
        model, description=dataclasses.replace(model.description, labels=NLI)
    )


def test_the_label_that_a_text_entails(nli):
    """By hand from the outputs of each pair."""
    pairs = [(text, f"it is the {label} .") for text in TEXTS for label in LABELS]
    raw = [each.probabilities for each in nli.classify(pairs, raw_scores=True)]
    exponentials = {
        name: np.exp([each[name] for each in raw]).reshape(2, 3) for name in (NLI[0], NLI[2])
    }
    expected = exponentials["entailment"] / exponentials["entailment"].sum(1, keepdims=True)
    made = nli.classify(TEXTS, candidate_labels=LABELS, template=TEMPLATE)
    for prediction, scores in zip(made, expected, strict=True):
        assert list(prediction.probabilities) == LABELS
        np.testing.assert_allclose([*prediction.probabilities.values()], scores, rtol=1e-5)
        assert prediction.label == LABELS[scores.argmax()]
        assert prediction.score == max(prediction.probabilities.values())

    expected = exponentials["entailment"] / sum(exponentials.values())
    made = nli.classify(TEXTS, candidate_labels=LABELS, template=TEMPLATE, multi_label=True)
    for prediction, scores in zip(made, expected, strict=True):
        np.testing.assert_allclose([*prediction.probabilities.values()], scores, rtol=1e-5)
        assert prediction.label == tuple(np.array(LABELS)[scores > 0.5])
    (alone,) = nli.classify(TEXTS[:1], candidate_labels=["sea"], template=TEMPLATE)
    assert (alone.label, alone.score) == ("sea", pytest.approx(expected[0, 2], rel=1e-5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidate_labels": []}, r"candidate_labels is \(\); give one label or more"),
        ({"candidate_labels": ["a", "a"]}, "name each label once"),
        ({"candidate_labels": "ab"}, "candidate_labels"),
        ({"candidate_labels": ["a"], "template": "it"}, "template is 'it'; give one {}, for the l"),
    ],
)
def test_candidate_labels_that_do_not_fit_are_refused(nli, options, message):
    with pytest.raises((OptionError, UserError), match=message):
        nli.classify(TEXTS, **options)


def test_a_model_without_entailment_is_refused(nli, make_model):
    for labels in (("bad", "good", "fine"), ("entailment", "entailed", "no")):
        description = dataclasses.replace(nli.description, labels=labels)
        model = dataclasses.replace(nli, description=description)
        with pytest.raises(UserError, match="^the model has no label entailment, which candidate"):
            model.classify(TEXTS, candidate_labels=LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("labels", [NLI, NLI[::-1], ("not_entailment", "entailment", "other")])
def test_scores_are_those_of_transformers(nli, tmp_path, labels, multi_label):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    description = dataclasses.replace(nli.description, labels=labels)
    model = dataclasses.replace(nli, description=description)
    model.save(tmp_path / "model")
    pipeline = transformers.pipeline(
        "zero-shot-classification", str(tmp_path / "model"), device="cpu"
    )
    expected = pipeline(
        TEXTS, candidate_labels=LABELS, hypothesis_template=TEMPLATE, multi_label=multi_label
    )
    made = model.classify(
        TEXTS, candidate_labels=LABELS, template=TEMPLATE, multi_label=multi_label
    )
    for prediction, reference in zip(made, expected, strict=True):
        scores = dict(zip(reference["labels"], reference["scores"], strict=True))
        assert prediction.probabilities == pytest.approx(scores, abs=1e-5)
        if not multi_label:
            assert prediction.label == reference["labels"][0]
