"""Scores of classes and of label sets by hand."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import matthews_corrcoef

from bert_jax.errors import UserError
from bert_jax.metrics.classification import ConfusionMatrix, LabelSets

LABELS = ("no", "yes", "maybe")
#                 gold       0  0  0  0  1  1  1  2  2  2
#                 predicted  0  0  0  1  1  1  0  0  1  1
COUNTS = np.array([[3, 1, 0], [1, 2, 0], [1, 2, 0]])


@pytest.fixture
def matrix() -> ConfusionMatrix:
    gold = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    return ConfusionMatrix(LABELS, gold, np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1]))


def test_scores_by_hand(matrix):
    np.testing.assert_array_equal(matrix.counts(np.arange(3)), COUNTS)
    np.testing.assert_array_equal(matrix.counts(np.array([2, 0])), [[0, 1], [0, 3]])
    assert matrix.accuracy == 0.5
    np.testing.assert_array_equal(matrix.scores.precision, [3 / 5, 2 / 5, 0])
    np.testing.assert_array_equal(matrix.scores.recall, [3 / 4, 2 / 3, 0])
    np.testing.assert_array_equal(matrix.scores.f1, [6 / 9, 4 / 8, 0])
    np.testing.assert_array_equal(matrix.scores.support, [4, 3, 3])
    assert matrix.f1("yes") == 0.5
    assert matrix.macro_f1 == pytest.approx((6 / 9 + 4 / 8) / 3, abs=1e-15)
    assert matrix.weighted_f1 == pytest.approx((4 * 6 / 9 + 3 * 4 / 8) / 10, abs=1e-15)
    # (5 · 10 - (4 · 5 + 3 · 5 + 3 · 0)) / √((100 - 25 - 25) (100 - 16 - 9 - 9))
    assert matrix.matthews == pytest.approx(15 / math.sqrt(50 * 66), abs=1e-15)
    with pytest.raises(UserError, match="there is no class '1' to give F1 of; it is one of 'no',"):
        matrix.f1("1")


def test_undefined_scores_are_zero():
    one_for_all = ConfusionMatrix(("0", "1"), np.array([0, 1, 1]), np.array([0, 0, 0]))
    assert one_for_all.matthews == 0
    assert one_for_all.f1("1") == 0
    none = LabelSets(("joy",), np.zeros((2, 1), bool), np.zeros((2, 1), bool))
    assert (none.subset_accuracy, none.micro_f1, none.macro_f1, none.samples_f1) == (1, 0, 0, 0)


def test_as_text(matrix):
    assert (
        matrix.as_text()
        == """\
class  precision  recall      f1  support
no        0.6000  0.7500  0.6667        4
yes       0.4000  0.6667  0.5000        3
maybe     0.0000  0.0000  0.0000        3

examples         10
accuracy     0.5000
macro f1     0.3889
weighted f1  0.4167
matthews     0.2611

gold \\ predicted  no  yes  maybe
no                 3    1      0
yes                1    2      0
maybe              1    2      0"""
    )


def test_of_many_classes_the_errors_are_listed():
    labels = tuple(f"class number {number} of a long list" for number in range(150))
    gold = np.repeat([*range(150), 7, 120], [10] * 150 + [2, 5])
    predicted = np.repeat([*range(150), 149, 3], [10] * 150 + [2, 5])
    text = ConfusionMatrix(labels, gold, predicted).as_text()
    assert text.endswith("""

the 2 largest of 2 kinds of errors
gold                            predicted                       count
class number…a long list (121)  class number…a long list (4)        5
class number…a long list (8)    class number…a long list (150)      2""")
    assert max(map(len, text.splitlines())) <= 100


DARK_BLUE = np.array([8, 48, 107]) / 255  # the end of the scale


def dark_cells(path) -> tuple[int, int, int]:
    """Number of pixels of the darkest colour, and height and width of the area that they span."""
    from matplotlib.image import imread

    pixels = imread(path)  # height, width, RGBA from 0 to 1
    dark = np.abs(pixels[..., :3] - DARK_BLUE).max(-1) < 0.01
    rows, columns = np.nonzero(dark)
    return int(dark.sum()), int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1


@pytest.mark.parametrize("classes", [1, 13])
def test_a_picture_of_a_perfect_model_is_dark_on_the_diagonal(tmp_path, classes):
    labels = ("costs $1", "costs $\\nothing$", "北京", *(f"{n}" * 99 for n in range(10)))[:classes]
    numbers = np.arange(classes)
    path = tmp_path / "confusion.png"
    ConfusionMatrix(labels, numbers, numbers).draw(path)
    dark, height, width = dark_cells(path)
    # The diagonal spans the whole matrix; text and borders take a little of it.
    assert height == pytest.approx(width, rel=0.02)
    assert dark / (height * width) == pytest.approx(1 / classes, rel=0.35)
    assert [entry.name for entry in tmp_path.iterdir()] == ["confusion.png"]


def test_in_a_picture_gold_classes_are_rows(tmp_path):
    path = tmp_path / "confusion.png"
    # All are taken for the second class: its column is dark, twice as high as wide.
    ConfusionMatrix(("a", "b"), np.array([0, 1, 1]), np.array([1, 1, 1])).draw(path)
    _, height, width = dark_cells(path)
    assert height == pytest.approx(2 * width, rel=0.05)
    with pytest.raises(UserError, match="cannot write"):
        ConfusionMatrix(("a",), np.array([0]), np.array([0])).draw(tmp_path / "none" / "a.png")


@pytest.mark.slow
def test_classes_as_many_as_texts(tmp_path):
    """A matrix of all classes would have 10¹⁰ cells."""
    classes = 100_000
    labels = tuple(f"class {number}" for number in range(classes))
    gold = np.arange(10, classes, 7)
    predicted = np.where(gold % 2, gold, gold - 9)
    matrix = ConfusionMatrix(labels, np.r_[gold, 5, 5], np.r_[predicted, 5, 6])
    assert 0.49 < matrix.matthews < 0.51
    text = matrix.as_text()
    wrong = np.count_nonzero(gold % 2 == 0) + 1
    assert f"the 40 largest of {wrong} kinds of errors" in text
    assert "\nclass 5 " in text
    assert len(text) < 10_000_000
    matrix.draw(tmp_path / "confusion.png")
    assert (tmp_path / "confusion.png").stat().st_size < 5_000_000


GOLD = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]], bool)
PREDICTED = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]], bool)


def test_scores_of_label_sets_by_hand():
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
class  precision  recall      f1  support
joy       1.0000  0.5000  0.6667        2
fear      1.0000  0.5000  0.6667        2
anger     0.0000  0.0000  0.0000        0

examples              4
subset accuracy  0.5000
micro f1         0.5714
macro f1         0.4444
samples f1       0.4167"""
    )


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_matthews_equals_scikit_learn(examples):
    gold, predicted = np.array(examples).T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a single class
        expected = matthews_corrcoef(gold, predicted)
    matrix = ConfusionMatrix(tuple("abcde"), gold, predicted)
    assert matrix.matthews == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("gold", [True, False])
def test_a_single_label_is_not_two_classes(gold):
    """For one column of 0 and 1, scikit-learn would also score 0 as a class."""
    sets = LabelSets(("joy",), np.array([[gold], [True]]), np.array([[True], [True]]))
    assert sets.scores.support.tolist() == [1 + gold]
    assert sets.micro_f1 == sets.macro_f1 == (1 if gold else 2 / 3)
