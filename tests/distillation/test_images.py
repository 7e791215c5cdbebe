"""DeiT learns from a teacher, by its scores or by its decisions."""

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.distillation.losses import hard_losses
from bert_jax.distillation.task import DistillationOutputs, DistilledTask
from bert_jax.errors import OptionError
from bert_jax.models.heads.image_classification_with_teacher import ImageLogits
from tests.tasks.images.conftest import experiment_of, photos, run  # noqa: F401


def test_the_decisions_of_a_teacher_are_labels():
    """Touvron et al., equation 3; of several labels, those above 0."""
    student = jnp.log(jnp.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]]))
    teacher = jnp.array([[0.0, 3.0, 1.0], [2.0, 0.0, 1.0]])
    losses = hard_losses("classes", student, teacher)
    assert losses.tolist() == pytest.approx([-np.log(0.2), -np.log(0.7)])
    both = hard_losses("labels", jnp.array([[0.0, 0.0]]), jnp.array([[5.0, -5.0]]))
    assert both.tolist() == pytest.approx([np.log(2)])


@pytest.fixture
def deit(run, experiment_of):  # noqa: F811
    """(keys of section distillation) → the experiment of a student of the run."""

    def make(changes=None, **keys):
        own = {f"distillation.{key}": value for key, value in keys.items()}
        own |= {"distillation.teacher": str(run / "model"), "model.family": "deit"}
        return experiment_of(own | (changes or {}))

    return make


def test_each_head_has_its_own_loss(deit):
    """Equations 2 and 3: (1 - λ) of the labels by [CLS], λ of the teacher by its token."""
    task = deit(task_weight=0.5, soft_weight=0.0, hard_weight=0.5).task
    assert isinstance(task, DistilledTask)
    probabilities = (jnp.array([[p, 1 - p]]) for p in (0.8, 0.4))
    of_cls, distilled = map(jnp.log, probabilities)
    student = ImageLogits((of_cls + distilled) / 2, of_cls, distilled)
    batch = {
        "labels": jnp.array([0]),
        "weights": jnp.array([1.0]),
        "attention_mask": jnp.ones((1, 6), jnp.int32),
    }
    outputs = DistillationOutputs(student, jnp.array([[-1.0, 1.0]]), {})
    sums = task.loss({}, outputs, batch)
    losses = {part: float(values["loss"]) for part, values in sums.items()}
    assert losses == pytest.approx({"task": -np.log(0.8), "hard": -np.log(0.6)})
    assert float(task.total_loss(losses)) == pytest.approx(-(np.log(0.8) + np.log(0.6)) / 2)
    weights = {part: float(weight) for part, weight in task.loss_weights(batch).items()}
    assert weights == {"task": 1, "hard": 1}


@pytest.mark.parametrize(
    ("changes", "keys", "message"),
    [
        ({"data.image_mean": (0.4,) * 3}, {}, "reads images in another way than the student; set"),
        ({}, {"keep_logits": "kept"}, "images are changed at random in each epoch, and scores"),
    ],
)
def test_scores_are_those_of_the_changed_images(deit, changes, keys, message):
    with pytest.raises(OptionError, match=message):
        assert deit(changes, **keys).task


@pytest.mark.parametrize(
    "changes", [{}, {"model.family": "vit", "model.patch_size": 2}], ids=["token", "patches"]
)
def test_states_of_other_tokens_are_not_compared(deit, changes):
    """A ViT has no distillation token, and each size of a patch its own number of tokens."""
    message = "other tokens of an image than the student.*leave out distillation.hidden_weight"
    with pytest.raises(OptionError, match=message):
        assert deit(changes, hidden_weight=1.0, soft_weight=1.0).task


@pytest.mark.slow
@pytest.mark.parametrize("part", ["soft", "hard"])
def test_a_student_trains_and_is_exported_with_both_heads(deit, tmp_path, part):
    weights = {"soft_weight": 0.0} | {f"{part}_weight": 0.5}
    result = deit(**weights).train(tmp_path / "run")
    assert result["accuracy"] == 1.0
    assert result["teacher_parameters"] > 0
    config = (tmp_path / "run" / "model" / "config.json").read_text()
    assert "DeiTForImageClassificationWithTeacher" in config
