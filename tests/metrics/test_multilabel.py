"""Scores of label sets by hand, and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.metrics.multilabel import LabelSets

GOLD = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]], bool)
PREDICTED = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]], bool)


def test_scores_by_hand():
    sets = LabelSets(("joy", "fear", "anger"), GOLD, PREDICTED)
    assert sets.subset_accuracy == 0.5
    # 2 right, 3 predicted, 4 there
    assert sets.micro_f1 == 4 / 7
    np.testing.assert_array_equal(sets.scores.f1, [2 / 3, 2 / 3, 0])
    assert sets.macro_f1 == pytest.approx(4 / 9, abs=1e-15)
    # The second example has no label on either side: 0.
    assert sets.samples_f1 == pytest.approx((2 / 3 + 0 + 1 + 0) / 4, abs=1e-15)
    assert (
        sets.as_text()
        == """\
class    precision  recall      f1  support
1 joy       1.0000  0.5000  0.6667        2
2 fear      1.0000  0.5000  0.6667        2
3 anger     0.0000  0.0000  0.0000        0

examples              4
subset accuracy  0.5000
micro f1         0.5714
macro f1         0.4444
samples f1       0.4167"""
    )


def test_nothing_at_all():
    sets = LabelSets(("joy",), np.zeros((0, 1), bool), np.zeros((0, 1), bool))
    assert (sets.subset_accuracy, sets.micro_f1, sets.macro_f1, sets.samples_f1) == (0, 0, 0, 0)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (4,)])
def test_shapes_must_agree(shape):
    with pytest.raises(ValueError, match=r"label sets of shapes .* not both \[n, 3\]"):
        LabelSets(("a", "b", "c"), GOLD, np.zeros(shape, bool))


def matrices(n: int, classes: int):
    rows = st.lists(st.booleans(), min_size=classes, max_size=classes)
    return st.lists(rows, min_size=n, max_size=n)


@pytest.mark.slow
@given(
    st.tuples(st.integers(1, 20), st.integers(2, 5)).flatmap(
        lambda shape: st.tuples(matrices(*shape), matrices(*shape))
    )
)
def test_scikit_learn(example):
    metrics = pytest.importorskip("sklearn.metrics")
    gold, predicted = (np.array(rows, bool) for rows in example)
    sets = LabelSets(tuple(map(str, range(gold.shape[1]))), gold, predicted)
    gold, predicted = gold.astype(int), predicted.astype(int)
    assert sets.subset_accuracy == metrics.accuracy_score(gold, predicted)
    for average in ("micro", "macro", "samples"):
        expected = metrics.f1_score(gold, predicted, average=average, zero_division=0)
        assert getattr(sets, f"{average}_f1") == expected
    expected = metrics.precision_recall_fscore_support(gold, predicted, zero_division=0)
    scores = sets.scores
    for own, theirs in zip(
        (scores.precision, scores.recall, scores.f1, scores.support), expected, strict=True
    ):
        np.testing.assert_array_equal(own, theirs)
