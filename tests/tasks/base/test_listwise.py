"""Losses of ranked lists: values and gradients of sentence-transformers."""

import functools
import math

import jax
import numpy as np
import pytest

from bert_jax.tasks.base.listwise import LIST_LOSSES

# Two queries with four and three documents; the last place of the second is padding.
SCORES = np.array([[2.0, -1.0, 0.5, 0.25], [0.0, 1.5, -2.0, 9.0]], np.float32)
GRADES = np.array([[3.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 7.0]], np.float32)
EXISTS = np.array([[True] * 4, [True] * 3 + [False]])

# Recorded from sentence-transformers 6.2: the loss, and its gradient by the scores.
RECORDED = {
    "list_net": (
        1.4625589,
        [[0.023659, -0.026365, 0.061088, -0.058382], [-0.199043, 0.292967, -0.093924, 0]],
    ),
    "list_mle": (
        2.3851786,
        [[-0.154384, -0.335851, 0.735664, -0.245428], [-0.410985, 0.384282, 0.026703, 0]],
    ),
    "p_list_mle": (
        0.9744719,
        [[-0.098244, -0.011014, 0.154353, -0.045095], [-0.308239, 0.295539, 0.012699, 0]],
    ),
    "rank_net": (
        0.904903,
        [[-0.068149, -0.098725, 0.281718, -0.114844], [-0.168936, 0.147439, 0.021497, 0]],
    ),
    "lambda_loss": (
        1.7398428,
        [[-0.127004, 0.015356, 0.246977, -0.135329], [-0.680721, 0.598568, 0.082152, 0]],
    ),
}


@functools.partial(jax.jit, static_argnums=0)
def mean_loss(name, scores, grades=GRADES, exists=EXISTS):
    loss = LIST_LOSSES[name]
    return loss.losses(scores, grades, exists).sum() / loss.count(grades, exists).sum()


@pytest.mark.parametrize("name", RECORDED)
def test_values_and_gradients_of_the_peer(name):
    value, gradient = jax.value_and_grad(mean_loss, argnums=1)(name, SCORES)
    expected, slopes = RECORDED[name]
    assert float(value) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient, slopes, atol=1e-6)


def test_one_pair_by_hand():
    """Documents of grades 1 and 0 with the scores 0 and log 3: each loss is a logarithm."""
    pair = np.array([[0.0, math.log(3)]]), np.array([[1.0, 0.0]]), np.ones((1, 2), bool)
    assert mean_loss("list_mle", *pair) == pytest.approx(math.log(4))
    assert mean_loss("rank_net", *pair) == pytest.approx(2)  # log2 of 4
    # nDCG falls from 1 to 1 / log2(3) with the better document in place 2.
    assert mean_loss("lambda_loss", *pair) == pytest.approx(2 * 11 * (1 - 1 / math.log2(3)))


def test_padding_changes_nothing():
    for name in LIST_LOSSES:
        losses = jax.jit(LIST_LOSSES[name].losses)
        row = losses(SCORES, GRADES, EXISTS)[1]
        (alone,) = losses(SCORES[1:, :3], GRADES[1:, :3], EXISTS[1:, :3])
        assert float(row) == pytest.approx(float(alone), rel=1e-6), name
        assert np.isfinite(losses(SCORES, GRADES, np.zeros((2, 4), bool))).all(), name


@pytest.mark.slow
def test_many_lists_beside_sentence_transformers():
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.cross_encoder.losses")

    class Scores:
        """A cross-encoder that returns these scores for the pairs of all queries."""

        num_labels, device = 1, "cpu"

        def __init__(self, scores):
            self.scores = scores

        def preprocess(self, pairs, **_):
            return {}

        def __call__(self, _):
            return {"scores": self.scores}

    generator = np.random.default_rng(0)
    counts = generator.integers(1, 9, 200)
    exists = np.arange(8) < counts[:, None]
    scores = generator.normal(0, 3, exists.shape).astype(np.float32)
    grades = generator.integers(0, 4, exists.shape).astype(np.float32)
    for name, title in (
        *(("list_net", "ListNetLoss"), ("rank_net", "RankNetLoss"), ("lambda_loss", "LambdaLoss")),
        *(("list_mle", "ListMLELoss"), ("p_list_mle", "PListMLELoss")),
    ):
        if "mle" in name:  # which follows the given order
            grades = -np.sort(-np.where(exists, grades, -1))
        flat = torch.tensor(scores[exists], requires_grad=True)
        peer = getattr(losses, title)(Scores(flat[:, None]), mini_batch_size=-1)
        texts = [["d"] * count for count in counts]
        labels = [torch.tensor(row[:count]) for row, count in zip(grades, counts, strict=True)]
        expected = peer([["q"] * len(counts), texts], labels)
        expected.backward()
        arguments = name, scores, grades, exists
        value, gradient = jax.value_and_grad(mean_loss, argnums=1)(*arguments)
        assert float(value) == pytest.approx(expected.item(), rel=1e-5), name
        np.testing.assert_allclose(gradient[exists], flat.grad.numpy(), atol=1e-6, err_msg=name)
