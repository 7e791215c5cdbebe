"""Weights of classes, by eye and against scikit-learn."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from bert_jax.errors import UserError
from bert_jax.tasks.base.labelled_options import ClassData
from bert_jax.tasks.base.labels import balanced_weights


def test_every_class_that_occurs_has_the_same_share_of_a_loss_with_mean_1():
    counts = np.array([6, 0, 1, 2])
    weights = balanced_weights(counts)
    np.testing.assert_allclose(weights[[0, 2, 3]], [0.5, 3.0, 1.5])
    assert weights.dtype == np.float32
    labels = np.repeat(np.arange(4), counts)
    expected = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    np.testing.assert_allclose(weights[np.unique(labels)], expected, rtol=1e-6)


def test_the_key():
    assert ClassData(class_weights="balanced").class_weights == "balanced"
    with pytest.raises(
        UserError, match="data.class_weights is .equal.; it must be .. or .balanced."
    ):
        ClassData(class_weights="equal")
