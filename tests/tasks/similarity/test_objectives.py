"""Losses of pairs and their labels: by hand, in NumPy, and beside sentence-transformers."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.examples import Example
from bert_jax.errors import UserError
from bert_jax.models.sentence_pairs import PairOutput, pair_features
from bert_jax.tasks.similarity.objectives import (
    ContrastiveObjective,
    CosentObjective,
    CosineObjective,
    MultipleNegativesRanking,
    SoftmaxObjective,
    text_numbers,
)

# Cosines 1, 0, -1 and 0.6.
VECTORS = np.array(
    [[[2, 0], [1, 0]], [[3, 0], [0, 1]], [[1, 1], [-2, -2]], [[1, 0], [3, 4]]], np.float32
)
COSINE, CONTRASTIVE, RANKING = CosineObjective(), ContrastiveObjective(), MultipleNegativesRanking()
DIFFERENT = np.arange(16).reshape(8, 2)


def pairs(*labels):
    return [
        Example((f"a {number}", f"b {number}"), label, str(number), f"pairs.tsv:{number + 2}")
        for number, label in enumerate(labels)
    ]


def losses(objective, vectors, targets, is_pair=None, logits=None):
    counted = np.ones(len(vectors), bool) if is_pair is None else is_pair
    return jax.jit(objective.losses)(PairOutput(vectors, logits), np.asarray(targets), counted)


def random_vectors(seed, pairs=6, width=5):
    return np.random.default_rng(seed).normal(size=(pairs, 2, width)).astype(np.float32)


# Two pairs of the same directions: the scores of ranking are scale × [[1, 0], [0, 1]].
ALIKE = np.array([[[1, 0], [2, 0]], [[0, 3], [0, 1]]], np.float32)
LOGITS = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))


@pytest.mark.parametrize(
    ("objective", "vectors", "targets", "expected"),
    [
        (COSINE, VECTORS, [1, 0.5, 0, 0.6], [0, 0.25, 1, 0]),
        (CONTRASTIVE, VECTORS, [1, 1, 1, 1], [0, 0.5, 2, 0.08]),  # distances 0, 1, 2, 0.4
        (CONTRASTIVE, VECTORS, [0, 0, 0, 0], [0.125, 0, 0, 0.005]),
        (SoftmaxObjective(("x", "y")), ALIKE, [0, 1], -np.log([0.25, 0.5])),
        (MultipleNegativesRanking(2.0), ALIKE, DIFFERENT[:2], [np.log(np.exp(2) + 1) - 2] * 2),
        # The pair with cosine 0 has the higher label; then both have the same one.
        (CosentObjective(2.0), VECTORS[:2], [0, 1], [np.log(1 + np.exp(2))] * 2),
        (CosentObjective(2.0), VECTORS[:2], [1, 1], [0, 0]),
        (RANKING, np.ones((3, 2, 4)), [[0, 1], [2, 3], [4, 5]], np.log([3, 3, 3])),
        (RANKING, np.ones((3, 2, 4)), [[0, 1], [2, 1], [4, 5]], np.log([2, 2, 3])),  # same answer
        (RANKING, np.ones((3, 2, 4)), [[0, 1], [0, 3], [4, 5]], np.log([2, 2, 3])),  # another one
        (RANKING, np.ones((3, 2, 4)), [[0, 1], [2, 0], [4, 5]], np.log([2, 3, 3])),  # the text
    ],
)
def test_losses_by_hand(objective, vectors, targets, expected):
    actual = losses(objective, np.float32(vectors), targets, logits=LOGITS)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_rows_that_fill_up_a_batch_are_no_negatives():
    vectors, is_pair = random_vectors(0), np.arange(6) < 4
    vectors[4:] = 0
    actual = losses(RANKING, vectors, DIFFERENT[:6], is_pair)
    np.testing.assert_allclose(actual[:4], losses(RANKING, vectors[:4], DIFFERENT[:4]), rtol=1e-6)
    assert np.isfinite(actual).all()


@settings(max_examples=20)
@given(st.integers(0, 1000))
@pytest.mark.slow
def test_losses_in_numpy(seed):
    vectors = random_vectors(seed)
    exact = vectors.astype(np.float64)
    unit = exact / np.linalg.norm(exact, axis=-1, keepdims=True)
    cosine = (unit[:, 0] * unit[:, 1]).sum(-1)
    labels = np.random.default_rng(seed).integers(0, 2, 6)
    np.testing.assert_allclose(losses(COSINE, vectors, labels), (cosine - labels) ** 2, atol=1e-5)
    apart = np.where(labels, 1 - cosine, np.maximum(0, cosine - 0.5))
    np.testing.assert_allclose(losses(CONTRASTIVE, vectors, labels), apart**2 / 2, atol=1e-5)
    scores = 20 * unit[:, 0] @ unit[:, 1].T
    expected = np.log(np.exp(scores).sum(1)) - np.diag(scores)
    np.testing.assert_allclose(losses(RANKING, vectors, DIFFERENT[:6]), expected, atol=1e-4)


@pytest.mark.parametrize("objective", [COSINE, CONTRASTIVE, RANKING])
def test_gradients_are_finite_at_zero_vectors(objective):
    vectors = VECTORS[:3] * np.float32([1, 1, 0])[:, None, None]
    targets = DIFFERENT[:3] if objective is RANKING else np.ones(3)
    is_pair = np.array([True, True, False])

    def loss(vectors):
        return objective.losses(PairOutput(vectors, None), targets, is_pair).sum()

    assert np.isfinite(jax.jit(jax.grad(loss))(vectors)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cosine", "contrastive", "softmax", "in_batch", "cosent"])
def test_loss_and_gradient_are_those_of_sentence_transformers(name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses as peers

    class Identity(torch.nn.Module):
        """A model whose vectors are its input."""

        device = "cpu"

        def forward(self, features):
            return features

    vectors, model = random_vectors(1, pairs=8, width=12), Identity()
    labels = np.array([0, 1, 1, 0, 1, 0, 0, 1])
    kernel = np.random.default_rng(2).normal(size=(36, 3)).astype(np.float32)
    objective, targets, peer = {
        "cosine": (COSINE, np.float32(labels / 2), peers.CosineSimilarityLoss(model)),
        "contrastive": (CONTRASTIVE, labels, peers.ContrastiveLoss(model)),
        "softmax": (SoftmaxObjective(tuple("xyz")), labels, peers.SoftmaxLoss(model, 12, 3)),
        "cosent": (CosentObjective(), np.float32(labels + labels[::-1]), peers.CoSENTLoss(model)),
        "in_batch": (RANKING, DIFFERENT, peers.MultipleNegativesRankingLoss(model)),
    }[name]
    if name == "softmax":
        peer.classifier.weight.data = torch.tensor(kernel.T.copy())
        peer.classifier.bias.data.zero_()

    def ours(vectors):
        logits = pair_features(vectors[:, 0], vectors[:, 1]) @ kernel
        return objective.losses(PairOutput(vectors, logits), targets, np.ones(8, bool)).mean()

    tensor = torch.tensor(vectors, requires_grad=True)
    features = [{"sentence_embedding": tensor[:, text]} for text in (0, 1)]
    expected = peer(features, torch.tensor(labels if name == "in_batch" else targets))
    expected.backward()
    actual, gradient = jax.jit(jax.value_and_grad(ours))(vectors)
    assert float(actual) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), atol=1e-6)


def test_labels_become_targets():
    objective = CosineObjective((1.0, 5.0))
    assert objective.targets(pairs(1.0, 5.0, 3.0, "2")).tolist() == [0, 1, 0.5, 0.25]
    assert CONTRASTIVE.targets(pairs(1.0, 0.0)).tolist() == [1, 0]
    assert SoftmaxObjective(("x", "y")).targets(pairs("y", "x")).tolist() == [1, 0]
    texts = [("a", "b"), ("c", "a"), ("b", "b")]
    examples = [Example(pair) for pair in texts]
    assert text_numbers(examples).tolist() == [[0, 1], [2, 0], [1, 1]]


@pytest.mark.parametrize(
    ("objective", "labels", "message"),
    [
        (COSINE, (0.5, 3.5), r"tsv:3: the label 3.5 is not between 0 and 1"),
        (COSINE, ("x",), r"tsv:2: the label 'x' is not a number"),
        (COSINE, (("a", "b"),), r"tsv:2: the label \('a', 'b'\) is not a number"),
        (CONTRASTIVE, (0.0, 1.0, 0.5), r"tsv:4: the label is 0.5; .*must be 1"),
        (SoftmaxObjective(("x", "y")), ("x", "z"), r"tsv:3: label 'z' is none of x, y"),
    ],
)
def test_labels_that_are_refused(objective, labels, message):
    with pytest.raises(UserError, match=message):
        objective.targets(pairs(*labels))


def test_which_pairs_belong_together(capsys):
    objective = MultipleNegativesRanking(label_range=(0.0, 5.0))
    unlabelled = pairs(None, None)
    assert objective.select(unlabelled) == unlabelled
    assert capsys.readouterr().err == ""
    labelled = pairs(5.0, 2.5, 3.0, 0.0)
    assert objective.select(labelled) == [labelled[0], labelled[2]]
    assert "2 of 4 training pairs are labelled 2.5 or less: left out" in capsys.readouterr().err
    with pytest.raises(UserError, match="no training pair has a label above 2.5"):
        objective.select(pairs(0.0, 1.0))


@pytest.mark.parametrize(
    ("objective", "label", "expected"),
    [
        (COSINE, 0.2, True),
        (CONTRASTIVE, 1.0, True),
        (CONTRASTIVE, 0.5, False),
        (SoftmaxObjective(("x", "y")), "x", True),
        (SoftmaxObjective(("x", "y")), "3.5", False),
        (SoftmaxObjective(), "x", False),
        (RANKING, 1.0, False),
    ],
)
def test_which_losses_are_metrics(objective, label, expected):
    assert objective.can_evaluate(pairs(label)) == expected
