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


# Losses of a label with the probability 3/4, and 1/4.
LIKELY, UNLIKELY = math.log(4 / 3), math.log(4)
SCORES = np.array([[LOG3, 0.0]])  # BC
WORDS = np.array([[[LOG3, 0.0], [LOG3, 0.0], [9.0, 0.0]]])  # BTV
WORD_LABELS = {"labels": np.array([[0, 1, -100]])}  # the last word has none


@pytest.mark.parametrize(
    ("head", "output", "labels", "expected"),
    [
        ("masked_lm", WORDS, WORD_LABELS, {"masked_lm": (LIKELY + UNLIKELY) / 2}),
        ("tagging", WORDS, WORD_LABELS, {"tagging": (LIKELY + UNLIKELY) / 2}),
        (
            "pretraining",
            PreTrainingOutput(SCORES[:, None], SCORES[:, ::-1]),
            {"labels": np.array([[0]]), "next_sentence_label": np.array([0])},
            {"masked_lm": LIKELY, "next_sentence": UNLIKELY, "sum": LIKELY + UNLIKELY},
        ),
        (
            "question_answering",
            QuestionAnsweringOutput(SCORES, SCORES),
            {"start_positions": np.array([0]), "end_positions": np.array([1])},
            {"span": (LIKELY + UNLIKELY) / 2},
        ),
        (
            "multiple_choice",
            SCORES,
            {"labels": np.array([1])},
            {"choice": UNLIKELY, "mean_score": LOG3 / 2, "sum": UNLIKELY + LOG3 / 2},
        ),
    ],
)
def test_the_losses_of_a_head(head, output, labels, expected):
    computed = losses(head, "single_label_classification", output, labels)
    assert list(computed) == list(expected)
    assert computed == pytest.approx(expected)


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
def test_the_loss_of_a_classifier_follows_its_problem_type(problem_type, logits, labels, expected):
    labels = {"labels": np.array(labels)}
    computed = losses("classification", problem_type, np.array(logits), labels)
    assert computed == {"classification": pytest.approx(expected)}


@pytest.mark.parametrize("pooled", [None, np.array([[10.0, 20.0]])])
def test_the_bare_encoder_has_a_linear_form_for_a_loss(pooled):
    output = EncoderOutput(np.array([[[1.0, 2.0], [3.0, 4.0]]]), pooled, None, None, None)
    labels = {
        "last_hidden_state": np.array([[[1.0, 0.0], [0.0, 2.0]]]),
        "pooler_output": np.array([[1.0, 1.0]]),
    }
    computed = losses("encoder", "single_label_classification", output, labels)
    assert computed == {"linear_form": 9.0 if pooled is None else 39.0}
    assert list(find_head("encoder").compared.named_logits(output)) == (
        [] if pooled is None else ["pooler_output"]
    )
