"""Weights of classes, by eye."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.tasks.base.labelled_task import balanced_weights, is_balanced


def test_every_class_that_occurs_has_the_same_share_of_a_loss_with_mean_1():
    counts = np.array([6, 0, 1, 2])
    weights = balanced_weights(counts)
    np.testing.assert_allclose(weights[[0, 2, 3]], [0.5, 3.0, 1.5])
    np.testing.assert_allclose((weights * counts).sum(), counts.sum())
    assert weights.dtype == np.float32


def test_the_key():
    assert not is_balanced("")
    assert is_balanced("balanced")
    with pytest.raises(UserError, match="class_weights is .equal.; it must be .. or .balanced."):
        is_balanced("equal")
