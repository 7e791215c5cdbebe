"""Weights of classes, by eye and against scikit-learn."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from bert_jax.errors import UserError
from bert_jax.tasks.base.labelled_options import balanced_weights, check_class_weights


def test_every_class_that_occurs_has_the_same_share_of_a_loss_with_mean_1():
    counts = np.array([6, 0, 1, 2])
    weights = balanced_weights(counts)
    np.testing.assert_allclose(weights[[0, 2, 3]], [0.5, 3.0, 1.5])
    np.testing.assert_allclose((weights * counts).sum(), counts.sum())
    assert weights.dtype == np.float32


def test_weights_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(200):
        labels = rng.integers(0, rng.integers(1, 8), rng.integers(1, 40))
        expected = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
        weights = balanced_weights(np.bincount(labels, minlength=9))
        np.testing.assert_allclose(weights[np.unique(labels)], expected, rtol=1e-6)


def test_the_key():
    check_class_weights("")
    check_class_weights("balanced")
    with pytest.raises(
        UserError, match="data.class_weights is .equal.; it must be .. or .balanced."
    ):
        check_class_weights("equal")
