"""Scores of classifiers beside sentence-transformers and the pipelines of transformers."""

import dataclasses
import json

import numpy as np
import pytest

import bert_jax
from bert_jax.errors import UserError

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

PAIRS = [("the cat sat", "on the mat"), ("a dog", "a bird sang ."), ("sun", "the sea was long")]


@pytest.fixture
def saved(make_model, tmp_path):
    """A classifier, saved by bert_jax."""

    def save(labels, name="model", **described):
        model = make_model("classification", num_labels=labels)
        description = dataclasses.replace(model.description, **described)
        dataclasses.replace(model, description=description).save(tmp_path / name)
        return tmp_path / name

    return save


@pytest.mark.parametrize("activation", [None, "Sigmoid", "Identity", "Tanh", "Softplus"])
@pytest.mark.parametrize("labels", [1, 3])
def test_a_cross_encoder_there_and_back(saved, tmp_path, activation, labels):
    """Saved by sentence-transformers 6, which stores the activation beside config.json."""
    function = getattr(torch.nn, activation)() if activation else None
    peer = sentence_transformers.CrossEncoder(str(saved(labels)), activation_fn=function)
    peer.save_pretrained(str(tmp_path / "peer"))
    model = bert_jax.load(tmp_path / "peer")
    logits = peer.predict(PAIRS, activation_fn=torch.nn.Identity())
    raw = model.classify(PAIRS, raw_scores=True)
    model.save(tmp_path / "again")
    again = sentence_transformers.CrossEncoder(str(tmp_path / "again"))
    assert type(again.activation_fn) is type(peer.activation_fn)
    np.testing.assert_allclose(again.predict(PAIRS), peer.predict(PAIRS), atol=1e-6)
    if labels == 1:
        np.testing.assert_allclose(raw, logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(model.classify(PAIRS), peer.predict(PAIRS), atol=1e-5)
    else:
        actual = [list(each.probabilities.values()) for each in raw]
        np.testing.assert_allclose(actual, logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "problem_type"),
    [
        (1, None),
        (1, "regression"),
        (3, None),
        (3, "single_label_classification"),
        (3, "multi_label_classification"),
        (3, "regression"),
    ],
)
def test_scores_are_those_of_a_pipeline(saved, labels, problem_type):
    directory = saved(labels, problem_type=problem_type)
    pipeline = transformers.pipeline("text-classification", str(directory), top_k=None)
    peer = pipeline([{"text": first, "text_pair": second} for first, second in PAIRS])
    for actual, expected in zip(bert_jax.load(directory).classify(PAIRS), peer, strict=True):
        scores = {each["label"]: each["score"] for each in expected}
        probabilities = {"LABEL_0": actual} if labels == 1 else actual.probabilities
        assert probabilities == pytest.approx(scores, rel=1e-4, abs=1e-5)


def test_the_keys_of_older_versions(saved):
    for other in (
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}},
    ):
        directory = saved(1, name=str(len(json.dumps(other))), other=other)
        peer = sentence_transformers.CrossEncoder(str(directory)).predict(PAIRS)
        np.testing.assert_allclose(bert_jax.load(directory).classify(PAIRS), peer, atol=1e-5)


def test_a_cross_encoder_of_other_modules_is_refused(make_model, tmp_path):
    """Its score is that of a linear map behind a pooling, which no class of transformers has."""
    base = sentence_transformers.base.modules
    make_model("encoder").save(tmp_path / "encoder")
    pooling = sentence_transformers.sentence_transformer.modules.Pooling(16)
    dense = base.Dense(16, 1, module_input_name="sentence_embedding", module_output_name="scores")
    parts = [base.Transformer(str(tmp_path / "encoder")), pooling, dense]
    sentence_transformers.CrossEncoder(modules=parts).save(str(tmp_path / "peer"))
    model = bert_jax.load(tmp_path / "peer")
    with pytest.raises(UserError, match="modules.json: the module .*Pooling is not supported"):
        model.rank("the cat", ["sat"])
