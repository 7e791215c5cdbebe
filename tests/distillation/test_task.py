"""A student's loss for every task: which scores are compared, and which count."""

import jax
import numpy as np
import pytest
from scipy.special import rel_entr, softmax

import bert_jax
from bert_jax.models.encoder import init_params
from bert_jax.models.encoder_with_head import apply_model
from bert_jax.tasks.base.task import means
from tests.distillation.rows import ROWS


def divergence(student: np.ndarray, teacher: np.ndarray, temperature: float) -> float:
    """KL · T² of two lists of scores of the same choices."""
    p, q = (softmax(np.float64(each) / temperature) for each in (teacher, student))
    return float(temperature**2 * rel_entr(p, q).sum())


def expected_loss(name: str, batch: dict, student, teacher) -> float:
    """The mean over all that has a label, in plain loops, at a temperature of 3."""
    real = [row for row, weight in enumerate(np.atleast_1d(batch["weights"])) if np.any(weight)]
    losses = []
    for row in real:
        if name == "classes":
            losses.append(divergence(student[row], teacher[row], 3))
        elif name == "any classes":
            for mine, other in zip(student[row], teacher[row], strict=True):
                losses.append(divergence(np.array([mine, 0]), np.array([other, 0]), 3))
        elif name == "numbers":
            losses.append(float((student[row, 0] - teacher[row, 0]) ** 2))
        elif name == "tags":
            for word, position in enumerate(batch["word_positions"][row]):
                if batch["weights"][row, word]:
                    losses.append(divergence(student[row, position], teacher[row, position], 3))
        elif name == "answers":
            count = int(batch["attention_mask"][row].sum())
            for mine, other in zip(student, teacher, strict=True):  # start, then end
                losses.append(divergence(mine[row, :count], other[row, :count], 3))
        elif name == "choices":
            count = int(batch["choice_mask"][row].sum())
            losses.append(divergence(student[row, :count], teacher[row, :count], 3))
        else:
            losses.append(float(((student.vectors[row] - teacher.vectors[row]) ** 2).mean()))
    return float(np.mean(losses))


def loss_sums(task):
    """The function of parameters, batch and the teacher's parameters that a step computes."""

    def compute(params, batch, frozen_params):
        return task.loss_sums(params, batch | task.frozen_inputs.outputs(frozen_params, batch))

    return compute


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_loss_of_a_task(experiment_of, teacher_of, name):
    keys = {"teacher": str(teacher_of(name)), "temperature": 3.0, "task_weight": 2.0}
    experiment = experiment_of(name, **keys)
    task = experiment.task
    # Three examples of four in the last batch.
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    batch["weights"][-1] = 0
    if "labels" in batch and name == "tags":
        batch["labels"][-1] = -1
    params = init_params(task.module, jax.random.key(3))
    frozen_params = task.frozen_inputs.load(experiment.mesh)

    @jax.jit
    def compute(params, batch, frozen_params):
        sums = loss_sums(task)(params, batch, frozen_params)
        own = task.task.loss_sums(params, batch)
        outputs = task.task.forward(params, batch)
        of_teacher = apply_model(task.teacher.module, frozen_params, task.inputs(batch))
        metrics = means(sums, task.loss_weights(batch), task.total_loss)
        return metrics, means(own, task.task.loss_weights(batch)), outputs, of_teacher

    metrics, own, outputs, of_teacher = jax.device_get(compute(params, batch, frozen_params))
    expected = expected_loss(name, batch, outputs, of_teacher)
    assert expected > 1e-4
    # A divergence of similar scores is a small difference of float32 numbers near 1.
    assert metrics["soft_loss"] == pytest.approx(expected, rel=2e-5, abs=1e-6)
    assert metrics["task_loss"] == pytest.approx(own["loss"], rel=1e-6)
    assert metrics["loss"] == pytest.approx(2 * own["loss"] + 0.5 * metrics["soft_loss"], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["answers", "tags"])
def test_kept_scores_give_the_same_loss_and_are_computed_once(
    experiment_of, teacher_of, tmp_path, name, capsys
):
    keys = {"teacher": str(teacher_of(name)), "temperature": 3.0}
    kept = {**keys, "keep_logits": str(tmp_path / "kept")}
    result = []
    for chosen in (keys, kept, kept):
        # Rows of all lengths are in the scores' file, and batches of 16 or of 24 tokens.
        experiment = experiment_of(name, {"data.length": 24}, **chosen)
        task = experiment.task
        frozen_params = task.frozen_inputs.load(experiment.mesh)
        params = jax.jit(lambda key, task=task: init_params(task.module, key))(jax.random.key(3))
        compute = jax.jit(loss_sums(task))
        batches = list(task.train_batches(0, 3, host=0, hosts=1))
        assert {*task.batch_shapes()} == {*batches[0]}
        result.append([compute(params, batch, frozen_params) for batch in batches])
    assert capsys.readouterr().err.count("are computed once") == 1
    (file,) = (tmp_path / "kept").glob("*/scores.npy")
    for sums in result[1:]:
        for expected, other in zip(result[0], sums, strict=True):
            soft = float(expected["soft"]["loss"])
            assert float(other["soft"]["loss"]) == pytest.approx(soft, rel=1e-5, abs=1e-6)
    assert np.load(file).dtype == np.float32


@pytest.mark.slow
def test_attention_weights_of_other_layers_are_not_computed(experiment_of, teacher_of):
    """MiniLM compares the last layers alone: those before cost no memory."""
    keys = {"teacher": str(teacher_of("classes")), "layer_map": (0, 2)}
    keys |= {"attention_weight": 1.0, "value_relation_weight": 1.0}
    experiment = experiment_of("classes", **keys)
    task = experiment.task
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    params = jax.eval_shape(lambda: init_params(task.module, jax.random.key(3)))
    frozen_params = task.frozen_inputs.abstract_params(experiment.mesh)
    computed = str(jax.make_jaxpr(loss_sums(task))(params, batch, frozen_params))
    (rows, length), heads = batch["input_ids"].shape, task.description.config.num_attention_heads
    assert f"f32[1,{rows},{heads},{length},{length}]" in computed
    assert f"f32[2,{rows},{heads},{length},{length}]" not in computed


@pytest.mark.slow
def test_a_student_without_token_types_reads_the_rows_of_its_teacher(experiment_of, teacher_of):
    """A DistilBERT of a BERT: the teacher must see which text is the question."""
    teacher = str(teacher_of("answers"))
    keys = {"init_from": teacher, "model.family": "distilbert", "model.keep_layers": 1}
    compared = {"teacher": teacher, "temperature": 3.0, "hidden_weight": 1.0}
    experiment = experiment_of("answers", keys, **compared)
    task = experiment.task
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    rows = batch["token_type_ids"]
    assert rows[0, : int(batch["attention_mask"][0].sum())].tolist() == [0] * 4 + [1] * 5

    params = jax.jit(lambda key: init_params(task.module, key))(jax.random.key(3))
    frozen_params = task.frozen_inputs.load(experiment.mesh)
    compute = jax.jit(loss_sums(task))
    metrics = means(compute(params, batch, frozen_params), task.loss_weights(batch))
    model = bert_jax.load(teacher)
    inputs = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    of_teacher = model.module.apply({"params": model.params}, **inputs)
    outputs = task.task.module.apply({"params": params}, **inputs | {"token_type_ids": None})
    expected = expected_loss("answers", batch, outputs, of_teacher)
    assert metrics["soft_loss"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    # What the student reads in an evaluation has no types.
    (evaluated,) = task.task.train_batches(0, 1, host=0, hosts=1)
    assert not evaluated["token_type_ids"].any()
    np.testing.assert_array_equal(evaluated["input_ids"], batch["input_ids"])
