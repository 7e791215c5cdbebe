"""A teacher's scores on the disk are those that were computed, or refused."""

import io
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.distillation.teacher_scores import TeacherScores
from bert_jax.errors import UserError

SCORES = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


class Scores(TeacherScores):
    """The scores of three examples and two classes, without a teacher."""

    def __init__(self, directory, teacher="a"):
        batches = SimpleNamespace(lengths=np.zeros(3))
        options = SimpleNamespace(length=8)
        super().__init__(SimpleNamespace(batches=batches, options=options), None, str(directory))
        self._request = {"teacher": teacher}
        self.computed = 0

    def _computed(self, mesh):
        self.computed += 1
        return SCORES

    def _shape(self, rows, length):
        return rows, 2


def ready(directory, teacher="a"):
    scores = Scores(directory, teacher)
    scores.ready(None)
    np.testing.assert_array_equal(scores.of(np.array([2, 0, -1]), 8), SCORES[[2, 0, 2]])
    return scores.computed


def test_scores_are_computed_once(tmp_path):
    assert [ready(tmp_path), ready(tmp_path), ready(tmp_path, "b"), ready(tmp_path)] == [1, 0, 1, 0]
    names = sorted(path.name for path in tmp_path.glob("*/[!.]*"))
    assert names == ["scores.npy"] * 2
    (next(tmp_path.glob("*/.record.json"))).unlink()  # as after a kill before it was written
    assert ready(tmp_path) + ready(tmp_path, "b") == 1


def saved(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def flipped(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def linked(path):
    path.rename(path.parents[1] / "scores.npy")
    path.symlink_to("../scores.npy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flipped, "is damaged; remove .* to start anew"),
        (lambda path: path.write_bytes(saved(SCORES.view(np.int32))), "is damaged"),
        (lambda path: path.write_bytes(saved(SCORES[:2])), "is damaged"),
        (lambda path: path.unlink(), "is damaged"),
        (linked, "is a link, not a file of bert_jax; remove it"),
    ],
)
def test_scores_that_were_changed(tmp_path, change, message):
    ready(tmp_path)
    change(next(tmp_path.glob("*/scores.npy")))
    with pytest.raises(UserError, match=rf"/scores.npy {message}"):
        ready(tmp_path)


def test_scores_of_another_teacher(tmp_path):
    ready(tmp_path)
    [of_a] = tmp_path.iterdir()
    ready(tmp_path, "b")
    [of_b] = {*tmp_path.iterdir()} - {of_a}
    for path in of_b.iterdir():
        path.replace(of_a / path.name)
    with pytest.raises(UserError, match=r"has scores of another request \(other teacher\)"):
        ready(tmp_path)
