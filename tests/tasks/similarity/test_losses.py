"""The losses of pairs, by hand, in NumPy, and beside sentence-transformers."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.models.sentence_pairs import pair_features
from bert_jax.tasks.similarity import objectives

cosines = jax.jit(objectives.cosines)
cosine_losses = jax.jit(objectives.cosine_losses)
contrastive_losses = jax.jit(objectives.contrastive_losses)
ranking_losses = jax.jit(objectives.ranking_losses)

# Cosines 1, 0, -1 and 0.6.
VECTORS = np.array(
    [[[2, 0], [1, 0]], [[3, 0], [0, 1]], [[1, 1], [-2, -2]], [[1, 0], [3, 4]]], np.float32
)
DIFFERENT = np.arange(12).reshape(6, 2)


def random_vectors(seed, pairs=6, width=5):
    return np.random.default_rng(seed).normal(size=(pairs, 2, width)).astype(np.float32)


def test_cosines_by_hand():
    np.testing.assert_allclose(cosines(VECTORS[:, 0], VECTORS[:, 1]), [1, 0, -1, 0.6], atol=1e-6)


def test_cosine_losses_by_hand():
    found = cosine_losses(VECTORS, np.array([1, 0.5, 0, 0.6]))
    np.testing.assert_allclose(found, [0, 0.25, 1, 0], atol=1e-6)


def test_contrastive_losses_by_hand():
    # Distances 0, 1, 2, 0.4.
    alike = contrastive_losses(VECTORS, np.ones(4), margin=0.5)
    np.testing.assert_allclose(alike, [0, 0.5, 2, 0.08], atol=1e-6)
    different = contrastive_losses(VECTORS, np.zeros(4), margin=0.5)
    np.testing.assert_allclose(different, [0.125, 0, 0, 0.005], atol=1e-6)


def test_in_batch_losses_by_hand():
    # Of two pairs of the same directions: scores 2 × [[1, 0], [0, 1]].
    vectors = np.array([[[1, 0], [2, 0]], [[0, 3], [0, 1]]], np.float32)
    expected = np.log(np.exp(2) + 1) - 2
    found = ranking_losses(vectors, DIFFERENT[:2], np.ones(2, bool), scale=2.0)
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-5)


@pytest.mark.parametrize(
    ("texts", "competitors"),
    [
        ([[0, 1], [2, 3], [4, 5]], [3, 3, 3]),
        ([[0, 1], [2, 1], [4, 5]], [2, 2, 3]),  # the same answer is no wrong one
        ([[0, 1], [0, 3], [4, 5]], [2, 2, 3]),  # nor is another answer to the same text
        ([[0, 1], [2, 0], [4, 5]], [2, 3, 3]),  # nor the text itself
    ],
)
def test_what_is_no_wrong_answer(texts, competitors):
    vectors = np.ones((3, 2, 4), np.float32)
    found = ranking_losses(vectors, np.array(texts), np.ones(3, bool), scale=20.0)
    np.testing.assert_allclose(found, np.log(competitors), rtol=1e-5)


def test_rows_that_fill_up_a_batch_are_no_wrong_answers():
    vectors = random_vectors(0)
    vectors[4:] = 0
    is_pair = np.arange(6) < 4
    found = ranking_losses(vectors, DIFFERENT, is_pair, scale=20.0)
    alone = ranking_losses(vectors[:4], DIFFERENT[:4], is_pair[:4], scale=20.0)
    np.testing.assert_allclose(found[:4], alone, rtol=1e-6)
    assert np.isfinite(found).all()


@given(st.integers(0, 1000))
def test_losses_in_numpy(seed):
    vectors = random_vectors(seed)
    exact = vectors.astype(np.float64)
    unit = exact / np.linalg.norm(exact, axis=-1, keepdims=True)
    cosine = (unit[:, 0] * unit[:, 1]).sum(-1)
    wanted = np.random.default_rng(seed).integers(0, 2, 6)
    np.testing.assert_allclose(cosine_losses(vectors, wanted), (cosine - wanted) ** 2, atol=1e-5)
    expected = [
        (1 - c) ** 2 / 2 if y else max(0, 0.5 - (1 - c)) ** 2 / 2
        for c, y in zip(cosine, wanted, strict=True)
    ]
    np.testing.assert_allclose(contrastive_losses(vectors, wanted, 0.5), expected, atol=1e-5)
    scores = 20 * unit[:, 0] @ unit[:, 1].T
    expected = np.log(np.exp(scores).sum(1)) - np.diag(scores)
    found = ranking_losses(vectors, DIFFERENT, np.ones(6, bool), 20.0)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("number", range(3))
def test_gradients_are_finite_at_zero_vectors(number):
    loss = (
        lambda vectors: cosine_losses(vectors, np.ones(3)).sum(),
        lambda vectors: contrastive_losses(vectors, np.zeros(3), 0.5).sum(),
        lambda vectors: ranking_losses(
            vectors, DIFFERENT[:3], np.array([True, True, False]), 20.0
        ).sum(),
    )[number]
    vectors = VECTORS[:3].copy()
    vectors[2] = 0
    assert np.isfinite(jax.jit(jax.grad(loss))(vectors)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cosine", "contrastive", "softmax", "in_batch"])
def test_loss_and_gradient_are_those_of_sentence_transformers(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses

    vectors = random_vectors(1, pairs=8, width=12)
    labels = np.array([0, 1, 1, 0, 1, 0, 0, 1])
    kernel = np.random.default_rng(2).normal(size=(36, 3)).astype(np.float32)
    texts, is_pair = np.arange(16).reshape(8, 2), np.ones(8, bool)

    def ours(vectors):
        if name == "cosine":
            return cosine_losses(vectors, labels / 2).mean()
        if name == "contrastive":
            return contrastive_losses(vectors, labels, 0.5).mean()
        if name == "in_batch":
            return ranking_losses(vectors, texts, is_pair, 20.0).mean()
        logits = jax.nn.log_softmax(pair_features(vectors[:, 0], vectors[:, 1]) @ kernel)
        return -logits[np.arange(8), labels].mean()

    class Given(torch.nn.Module):
        """Stands for a model whose vectors are known."""

        device = "cpu"

        def forward(self, features):
            return {"sentence_embedding": features["sentence_embedding"]}

    model = Given()
    theirs = {
        "cosine": lambda: losses.CosineSimilarityLoss(model),
        "contrastive": lambda: losses.ContrastiveLoss(model),
        "softmax": lambda: losses.SoftmaxLoss(model, 12, 3),
        "in_batch": lambda: losses.MultipleNegativesRankingLoss(model),
    }[name]()
    if name == "softmax":
        theirs.classifier.weight.data = torch.tensor(kernel.T.copy())
        theirs.classifier.bias.data.zero_()
    given = torch.tensor(vectors, requires_grad=True)
    features = [{"sentence_embedding": given[:, place]} for place in (0, 1)]
    target = torch.tensor(labels / 2 if name == "cosine" else labels).to(
        torch.float32 if name == "cosine" else torch.int64
    )
    expected = theirs(features, target)
    expected.backward()
    found, gradient = jax.jit(jax.value_and_grad(ours))(vectors)
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, given.grad.numpy(), atol=1e-6)
