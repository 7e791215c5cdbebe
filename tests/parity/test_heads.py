"""The losses of each head, by numbers that a person can check."""

import functools
import math

import jax
import numpy as np
import pytest

from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.head import find_head
from bert_jax.models.heads.pretraining import PreTrainingOutput
from bert_jax.models.heads.question_answering import QuestionAnsweringOutput

# softmax([log 3, 0]) = [3/4, 1/4]
LOG3 = math.log(3)


@functools.partial(jax.jit, static_argnums=(0, 1))  # quicker than one operation after the other
def losses(head, problem_type, output, labels):
    return find_head(head).compared.named_losses(output, labels, problem_type)


def test_words_without_a_label_do_not_count():
    logits = np.array([[[LOG3, 0.0], [LOG3, 0.0], [9.0, 0.0]]])  # BTV
    labels = {"labels": np.array([[0, 1, -100]])}
    expected = (math.log(4 / 3) + math.log(4)) / 2
    for head, name in (
        ("masked_lm", "masked_lm"),
        ("tagging", "tagging"),
    ):
        found = losses(head, "single_label_classification", logits, labels)
        assert found == {name: pytest.approx(expected)}


def test_the_loss_of_pretraining_is_the_sum_of_its_two():
    output = PreTrainingOutput(np.array([[[LOG3, 0.0]]]), np.array([[0.0, LOG3]]))
    labels = {"labels": np.array([[0]]), "next_sentence_label": np.array([0])}
    found = losses("pretraining", "single_label_classification", output, labels)
    assert list(found) == ["masked_lm", "next_sentence", "sum"]
    assert list(found.values()) == pytest.approx([math.log(4 / 3), math.log(4), math.log(16 / 3)])


def test_the_loss_of_a_span_is_the_mean_of_its_ends():
    output = QuestionAnsweringOutput(np.array([[LOG3, 0.0]]), np.array([[LOG3, 0.0]]))
    labels = {"start_positions": np.array([0]), "end_positions": np.array([1])}
    found = losses("question_answering", "single_label_classification", output, labels)
    assert found == {"span": pytest.approx((math.log(4 / 3) + math.log(4)) / 2)}


def test_the_loss_of_a_choice_goes_with_the_mean_score():
    labels = {"labels": np.array([1])}
    found = losses(
        "multiple_choice", "single_label_classification", np.array([[LOG3, 0.0]]), labels
    )
    assert list(found) == ["choice", "mean_score", "sum"]
    assert list(found.values()) == pytest.approx([math.log(4), LOG3 / 2, math.log(4) + LOG3 / 2])


@pytest.mark.parametrize(
    ("problem_type", "logits", "labels", "expected"),
    [
        ("single_label_classification", [[LOG3, 0.0], [0.0, 0.0]], [0, 1], math.log(8 / 3) / 2),
        # One output: labels are a list of values, logits a column.
        ("regression", [[1.0], [5.0]], [2.0, 2.0], (1 + 9) / 2),
        ("regression", [[1.0, 5.0]], [[2.0, 2.0]], (1 + 9) / 2),
        # sigmoid(log 3) = 3/4
        ("multi_label_classification", [[LOG3, LOG3]], [[1.0, 0.0]], math.log(16 / 3) / 2),
    ],
)
def test_the_loss_of_a_classifier_is_that_of_its_problem_type(
    problem_type, logits, labels, expected
):
    found = losses(
        "classification",
        problem_type,
        np.array(logits),
        {"labels": np.array(labels)},
    )
    assert found == {"classification": pytest.approx(expected)}


@pytest.mark.parametrize("pooled", [None, np.array([[10.0, 20.0]])])
def test_the_bare_encoder_has_a_linear_form_for_a_loss(pooled):
    output = EncoderOutput(np.array([[[1.0, 2.0], [3.0, 4.0]]]), pooled, None, None, None)
    labels = {
        "last_hidden_state": np.array([[[1.0, 0.0], [0.0, 2.0]]]),
        "pooler_output": np.array([[1.0, 1.0]]),
    }
    found = losses("encoder", "single_label_classification", output, labels)
    assert found == {"linear_form": 9.0 if pooled is None else 39.0}
    assert list(find_head("encoder").compared.named_logits(output)) == (
        [] if pooled is None else ["pooler_output"]
    )
