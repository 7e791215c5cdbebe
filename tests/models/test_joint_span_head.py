"""The joint head against the published description, written out in double precision."""

import math

import jax
import numpy as np
import pytest

from bert_jax.families import bert
from bert_jax.models.heads import question_answering
from bert_jax.models.heads.question_answering import BEAM_SIZE, JointSpanHead

joint_scores = jax.jit(question_answering.joint_scores)
span_beam = jax.jit(question_answering.span_beam, static_argnames="answer_length")

LENGTH, WIDTH, ANSWER_LENGTH = 30, 6, 25
# Passages of 25 tokens, of 4, and of none, as in a row of padding alone.
PASSAGES = np.array([[4, 29], [3, 7], [0, 0]], np.int32)
ALLOWED_STARTS = np.array([[5, 28], [3, 6], [0, 0]], np.int32)
GOLD = [(7, 9), (0, 0), (0, 0)]


def erf_gelu(x):
    return np.vectorize(lambda value: value * (1 + math.erf(value / math.sqrt(2))) / 2)(x)


def log_softmax(scores):
    return scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()


class Reference:
    """One row, as `finetune/qa/qa_tasks.py` describes it, token by token."""

    def __init__(self, params, hidden, passage):
        self.weights = {
            name: (np.array(part["kernel"], np.float64), np.array(part["bias"], np.float64))
            for name, part in params.items()
        }
        self.hidden = np.array(hidden, np.float64)
        self.allowed = [0, *range(*passage)]

    def dense(self, name, x):
        kernel, bias = self.weights[name]
        return x @ kernel + bias

    def over_tokens(self, scores):
        """Log probabilities by position, of allowed positions alone."""
        return dict(zip(self.allowed, log_softmax(np.array(scores)), strict=True))

    def starts(self):
        return self.over_tokens([self.dense("start", self.hidden[i])[0] for i in self.allowed])

    def ends(self, start):
        scores = []
        for j in self.allowed:
            pair = np.concatenate([self.hidden[start], self.hidden[j]])
            scores.append(self.dense("end", erf_gelu(self.dense("end_hidden", pair)))[0])
        return self.over_tokens(scores)

    def no_answer(self):
        expected = sum(np.exp(log) * self.hidden[i] for i, log in self.starts().items())
        inner = self.dense("no_answer_hidden", np.concatenate([self.hidden[0], expected]))
        return self.dense("no_answer", erf_gelu(inner))[0]

    def beam(self, allowed_starts, answer_length):
        """{start: (score, {end: score})} of the best starts that are allowed."""

        def best(scores):
            # Ties are ties, however they are rounded; then the order of the row counts.
            return dict(sorted(scores.items(), key=lambda item: -round(item[1], 5))[:BEAM_SIZE])

        starts = {i: log for i, log in self.starts().items() if i in range(*allowed_starts)}
        return {
            i: (
                log,
                best({j: e for j, e in self.ends(i).items() if i <= j < i + answer_length}),
            )
            for i, log in best(starts).items()
        }


@pytest.fixture(scope="module")
def params():
    """Random parameters, none of them 0."""
    config = bert.FAMILY.new_config("tiny", hidden_size=WIDTH)
    shapes = jax.eval_shape(JointSpanHead(config).init, jax.random.key(0))["params"]
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: draw.normal(0, 0.3, leaf.shape).astype(np.float32), shapes)


def references(params, hidden):
    return [Reference(params, row, passage) for row, passage in zip(hidden, PASSAGES, strict=True)]


def test_scores_follow_the_description(params):
    hidden = np.random.default_rng(1).normal(0, 1, (3, LENGTH, WIDTH)).astype(np.float32)
    starts = np.array([start for start, _ in GOLD], np.int32)
    scores = joint_scores(params, hidden, PASSAGES, starts)
    for row, expected in enumerate(references(params, hidden)):
        for logits, log_probs in (
            (scores.start_logits[row], expected.starts()),
            (scores.end_logits[row], expected.ends(starts[row])),
        ):
            probabilities = np.asarray(jax.nn.softmax(logits))
            np.testing.assert_allclose(
                probabilities[list(log_probs)], np.exp(list(log_probs.values())), rtol=2e-5
            )
            # No other token can be an answer: neither the question, nor a [SEP], nor padding.
            assert np.count_nonzero(probabilities) == len(log_probs)
        np.testing.assert_allclose(scores.no_answer_logits[row], expected.no_answer(), rtol=2e-5)


@pytest.mark.parametrize("vectors", [LENGTH, 3, 1])
def test_the_beam_has_the_best_of_all_pairs(params, vectors):
    """Also with ties: tokens with one of three vectors, or all with the same."""
    draw = np.random.default_rng(2)
    known = draw.normal(0, 1, (vectors, WIDTH)).astype(np.float32)
    hidden = known[draw.integers(0, vectors, (3, LENGTH))]
    beam = jax.device_get(
        span_beam(params, hidden, PASSAGES, ALLOWED_STARTS, answer_length=ANSWER_LENGTH)
    )
    for row, reference in enumerate(references(params, hidden)):
        expected = reference.beam(ALLOWED_STARTS[row], ANSWER_LENGTH)
        count = len(expected)
        assert count == (20, 3, 0)[row]
        assert beam.starts[row, :count].tolist() == list(expected)
        assert (beam.start_scores[row, count:] == -np.inf).all()
        for index, (score, ends) in enumerate(expected.values()):
            np.testing.assert_allclose(beam.start_scores[row, index], score, rtol=1e-4)
            size = len(ends)
            assert beam.ends[row, index, :size].tolist() == list(ends)
            np.testing.assert_allclose(
                beam.end_scores[row, index, :size], list(ends.values()), rtol=1e-4
            )
            assert (beam.end_scores[row, index, size:] == -np.inf).all()
