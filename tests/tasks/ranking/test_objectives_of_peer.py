"""The losses of a cross-encoder beside PyTorch's: values, and gradients by the scores.

For the losses of lists see `tasks/base/test_listwise.py`.
"""

import jax
import numpy as np
import pytest

from bert_jax.tasks.ranking.objectives import find_objective

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
F = torch.nn.functional

DRAW = np.random.default_rng(0)
QUERIES, DOCUMENTS = 64, 5
SCORES = DRAW.normal(0, 4, (QUERIES, DOCUMENTS)).astype(np.float32)
SCORES[0, :2] = 40, -40  # where the exponential of a careless form overflows
TEACHER = DRAW.normal(0, 4, (QUERIES, DOCUMENTS)).astype(np.float32)
COUNTS = DRAW.integers(2, DOCUMENTS + 1, QUERIES)
EXISTS = np.arange(DOCUMENTS) < COUNTS[:, None]


def assert_same(name, scores, batch, expected, positive_weight=1.0):
    """Compares the mean loss and its gradient.

    Args:
        name: the loss.
        scores: float32 [B, K].
        batch: what it reads of a batch.
        expected: PyTorch's scores → its mean loss.
        positive_weight: see `binary_cross_entropy`.
    """
    objective = find_objective(name, positive_weight)

    def mean(scores):
        return objective.losses(scores, batch).mean()

    tensor = torch.tensor(scores, requires_grad=True)
    reference = expected(tensor)
    reference.backward()
    value, gradient = jax.jit(jax.value_and_grad(mean))(scores)
    assert float(value) == pytest.approx(reference.item(), rel=1e-5)
    assert np.abs(tensor.grad.numpy()).max() > 1e-3
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("weight", [1.0, 4.0])
@pytest.mark.parametrize("grades", ["labels", "shares"])
def test_binary_cross_entropy(weight, grades):
    scores = SCORES.reshape(-1, 1)
    shares = DRAW.random(scores.shape).astype(np.float32)
    labels = shares if grades == "shares" else (shares > 0.5).astype(np.float32)

    def expected(tensor):
        loss = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weight))
        return loss(tensor, torch.tensor(labels))

    assert_same("binary_cross_entropy", scores, {"labels": labels}, expected, weight)


def test_cross_entropy():
    """The positive is the first; lists have different lengths."""

    def expected(tensor):
        rows = zip(tensor, COUNTS, strict=True)
        first = torch.tensor(0)
        return torch.stack([F.cross_entropy(row[:count], first) for row, count in rows]).mean()

    assert_same("cross_entropy", SCORES, {"exists": EXISTS}, expected)


def test_margin_mse():
    def expected(tensor):
        losses = []
        for row, teacher, count in zip(tensor, torch.tensor(TEACHER), COUNTS, strict=True):
            margins, targets = (each[:1] - each[1:count] for each in (row, teacher))
            losses.append(F.mse_loss(margins, targets))
        return torch.stack(losses).mean()

    assert_same("margin_mse", SCORES, {"exists": EXISTS, "scores": TEACHER}, expected)
