"""A teacher's scores on the disk are those that were computed, or refused."""

import io
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.distillation.teacher_scores import TeacherScores
from bert_jax.errors import UserError
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.sharding.mesh import one_device_mesh

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
    scores.load(None)
    np.testing.assert_array_equal(scores.batch_scores(np.array([2, 0, -1]), 8), SCORES[[2, 0, 2]])
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
        (lambda path: path.write_bytes(b""), "is damaged"),
        (lambda path: path.write_bytes(b"PK\3\4" + SCORES.tobytes()), "is damaged"),
        (lambda path: path.unlink(), "is damaged"),
        (linked, "is a link, not a file of bert_jax; remove it"),
    ],
)
def test_scores_that_were_changed(tmp_path, change, message):
    ready(tmp_path)
    change(next(tmp_path.glob("*/scores.npy")))
    with pytest.raises(UserError, match=rf"/scores.npy {message}"):
        ready(tmp_path)


def test_the_end_of_a_short_row_cannot_be_chosen():
    """The batch of a student may be longer than the one that the teacher has read."""
    lengths = np.array([3, 1])
    batches = SimpleNamespace(
        lengths=lengths,
        length_of=lambda examples: lengths[examples].max(),
        make=lambda examples, length: {"scores": np.ones((len(examples), length))},
    )
    options = SimpleNamespace(length=3, batch_size=1)
    task = SimpleNamespace(batches=batches, options=options, score_kind="classes")
    scores = TeacherScores(task, SimpleNamespace(params=lambda mesh: {}), "")
    scores._compute = lambda params, batch: batch["scores"]
    scores._shape = lambda rows, length: (rows, length)
    scores.load(one_device_mesh())
    expected = np.float32([[1, 1, 1], [1, MASK_VALUE, MASK_VALUE]])
    np.testing.assert_array_equal(scores.batch_scores(np.array([0, 1]), 3), expected)


def test_scores_of_another_teacher(tmp_path):
    ready(tmp_path)
    [of_a] = tmp_path.iterdir()
    ready(tmp_path, "b")
    [of_b] = {*tmp_path.iterdir()} - {of_a}
    for path in of_b.iterdir():
        path.replace(of_a / path.name)
    with pytest.raises(UserError, match=r"has scores of another request \(other teacher\)"):
        ready(tmp_path)
