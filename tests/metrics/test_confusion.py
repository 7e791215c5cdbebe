"""The confusion matrix by hand, and against scikit-learn to the last digit."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.errors import UserError
from bert_jax.metrics.confusion import ConfusionMatrix

LABELS = ("no", "yes", "maybe")
#                 gold       0  0  0  0  1  1  1  2  2  2
#                 predicted  0  0  0  1  1  1  0  0  1  1
COUNTS = np.array([[3, 1, 0], [1, 2, 0], [1, 2, 0]])


@pytest.fixture
def matrix() -> ConfusionMatrix:
    gold = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    return ConfusionMatrix.of(LABELS, gold, np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1]))


def test_scores_by_hand(matrix):
    np.testing.assert_array_equal(matrix.counts, COUNTS)
    assert matrix.counts.dtype == np.int64
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


def test_matthews_of_two_classes_is_the_known_formula():
    matrix = ConfusionMatrix(("0", "1"), np.array([[6, 1], [3, 2]]))
    expected = (6 * 2 - 1 * 3) / math.sqrt((6 + 1) * (6 + 3) * (2 + 1) * (2 + 3))
    assert matrix.matthews == pytest.approx(expected, abs=1e-15)


def test_what_is_not_defined_is_zero():
    one_for_all = ConfusionMatrix.of(("0", "1"), np.array([0, 1, 1]), np.array([0, 0, 0]))
    assert one_for_all.matthews == 0
    assert one_for_all.f1("1") == 0
    empty = ConfusionMatrix.of(LABELS, np.array([], np.int32), np.array([], np.int32))
    scores = (empty.accuracy, empty.macro_f1, empty.weighted_f1, empty.matthews, empty.f1("no"))
    assert scores == (0, 0, 0, 0, 0)
    assert "examples          0" in empty.as_text()


def test_a_class_that_nobody_meets_does_not_count_for_the_mean():
    matrix = ConfusionMatrix.of(LABELS, np.array([0, 1]), np.array([0, 1]))
    assert matrix.macro_f1 == 1
    # A class that is only predicted does: (⅔ + 0) / 2.
    matrix = ConfusionMatrix.of(LABELS, np.array([0, 0]), np.array([0, 1]))
    assert matrix.macro_f1 == pytest.approx(1 / 3, abs=1e-15)


def test_the_positive_class_must_be_known(matrix):
    with pytest.raises(UserError, match="there is no class '1' to give F1 of; it is one of 'no',"):
        matrix.f1("1")


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([0, 3], [0, 0], "class numbers must lie in 0 … 2"),
        ([0, 1], [0, -1], "class numbers must lie in 0 … 2"),
        ([0, 1], [0], "not both"),
        ([[0]], [[0]], "not both"),
    ],
)
def test_numbers_of_no_class(gold, predicted, message):
    with pytest.raises(ValueError, match=message):
        ConfusionMatrix.of(LABELS, np.array(gold), np.array(predicted))


def test_as_text(matrix):
    assert (
        matrix.as_text()
        == """\
class    precision  recall      f1  support
1 no        0.6000  0.7500  0.6667        4
2 yes       0.4000  0.6667  0.5000        3
3 maybe     0.0000  0.0000  0.0000        3

examples         10
accuracy     0.5000
macro f1     0.3889
weighted f1  0.4167
matthews     0.2611

gold \\ predicted  1  2  3
1 no              3  1  0
2 yes             1  2  0
3 maybe           1  2  0"""
    )


def test_of_many_classes_the_errors_are_listed():
    labels = tuple(f"class number {number} of a long list" for number in range(150))
    counts = np.diag(np.full(150, 10))
    counts[7, 149], counts[120, 3] = 2, 5
    text = ConfusionMatrix(labels, counts).as_text()
    assert text.endswith("""

the 2 largest of 2 kinds of errors
gold                          predicted                     count
121 class number…a long list    4 class number…a long list      5
  8 class number…a long list  150 class number…a long list      2""")
    assert max(map(len, text.splitlines())) <= 100


def test_parts_add_up(matrix):
    both = matrix + matrix
    np.testing.assert_array_equal(both.counts, 2 * COUNTS)
    assert both.matthews == pytest.approx(matrix.matthews, abs=1e-15)
    with pytest.raises(ValueError, match="matrices of different classes do not add up"):
        matrix + ConfusionMatrix(("a",), np.array([[1]]))


def pixels(path):
    from matplotlib.image import imread

    return imread(path)  # height, width, RGBA in 0 … 1


DARK_BLUE = np.array([8, 48, 107]) / 255  # the end of the scale


def dark_cells(path) -> tuple[int, int, int]:
    """Pixels of the darkest colour, and the height and width of what they span."""
    dark = np.abs(pixels(path)[..., :3] - DARK_BLUE).max(-1) < 0.01
    rows, columns = np.nonzero(dark)
    return int(dark.sum()), int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1


@pytest.mark.parametrize("classes", [1, 2, 13])
def test_a_picture_of_a_perfect_model_is_dark_on_the_diagonal(tmp_path, classes):
    labels = ("costs $1", "costs $\\nothing$", "北京", *(f"{n}" * 99 for n in range(10)))[:classes]
    numbers = np.arange(classes)
    path = tmp_path / "confusion.png"
    ConfusionMatrix.of(labels, numbers, numbers).draw(path)
    dark, height, width = dark_cells(path)
    # The diagonal spans the whole matrix; text and borders take a little of it.
    assert height == pytest.approx(width, rel=0.02)
    assert dark / (height * width) == pytest.approx(1 / classes, rel=0.35)
    assert [entry.name for entry in tmp_path.iterdir()] == ["confusion.png"]


def test_in_a_picture_gold_classes_are_rows(tmp_path):
    path = tmp_path / "confusion.png"
    # All are taken for the second class: its column is dark, twice as high as wide.
    ConfusionMatrix.of(("a", "b"), np.array([0, 1, 1]), np.array([1, 1, 1])).draw(path)
    _, height, width = dark_cells(path)
    assert height == pytest.approx(2 * width, rel=0.05)


def test_a_picture_that_cannot_be_written(tmp_path, matrix):
    with pytest.raises(UserError, match="cannot write"):
        matrix.draw(tmp_path / "nowhere" / "confusion.png")


@pytest.mark.slow
def test_a_picture_of_very_many_classes(tmp_path):
    chance = np.random.default_rng(0)
    labels = tuple(f"class {number}" for number in range(200))
    gold, predicted = chance.integers(0, 200, (2, 100_000))
    ConfusionMatrix.of(labels, gold, predicted).draw(tmp_path / "confusion.png")
    height, width, _ = pixels(tmp_path / "confusion.png").shape
    assert 200 * 20 < height < 10_000
    assert 200 * 20 < width < 10_000


def numbers(classes: int, count: int):
    return st.lists(st.integers(0, classes - 1), min_size=count, max_size=count)


PAIRS = st.tuples(st.integers(1, 6), st.integers(1, 40)).flatmap(
    lambda size: st.tuples(st.just(size[0]), numbers(*size), numbers(*size))
)


@given(PAIRS)
def test_scores_lie_in_their_range_and_parts_add_up(example):
    classes, gold, predicted = example
    labels = tuple(map(str, range(classes)))
    gold, predicted = np.array(gold), np.array(predicted)
    matrix = ConfusionMatrix.of(labels, gold, predicted)
    for score in (matrix.accuracy, matrix.macro_f1, matrix.weighted_f1, *matrix.scores.f1):
        assert 0 <= score <= 1
    assert abs(matrix.matthews) <= 1 + 1e-15
    middle = len(gold) // 2
    parts = ConfusionMatrix.of(labels, gold[:middle], predicted[:middle])
    parts += ConfusionMatrix.of(labels, gold[middle:], predicted[middle:])
    np.testing.assert_array_equal(parts.counts, matrix.counts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A single label was found")
@given(PAIRS)
def test_scikit_learn(example):
    metrics = pytest.importorskip("sklearn.metrics")
    classes, gold, predicted = example
    matrix = ConfusionMatrix.of(
        tuple(map(str, range(classes))), np.array(gold), np.array(predicted)
    )
    every = list(range(classes))
    np.testing.assert_array_equal(
        matrix.counts, metrics.confusion_matrix(gold, predicted, labels=every)
    )
    scores = matrix.scores
    expected = metrics.precision_recall_fscore_support(
        gold, predicted, labels=every, zero_division=0
    )
    for own, theirs in zip(
        (scores.precision, scores.recall, scores.f1, scores.support), expected, strict=True
    ):
        np.testing.assert_array_equal(own, theirs)
    assert matrix.accuracy == metrics.accuracy_score(gold, predicted)
    assert matrix.matthews == metrics.matthews_corrcoef(gold, predicted)
    for average in ("macro", "weighted"):
        expected = metrics.f1_score(gold, predicted, average=average, zero_division=0)
        assert getattr(matrix, f"{average}_f1") == expected
    if classes == 2:
        assert matrix.f1("1") == metrics.f1_score(gold, predicted, zero_division=0)
