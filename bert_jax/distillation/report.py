"""The result of a distillation: size, speed and score of teacher and student."""

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.inference.engine import Engine
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.process import say
from bert_jax.sharding.hosts import from_main_host, is_main_host, to_global
from bert_jax.tasks.base.corpus_task import CorpusTask
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator
from bert_jax.tasks.base.task import Task

# Validation texts that are timed, and how often: the fastest pass counts.
_TEXTS, _PASSES = 256, 5


def compare(
    teacher: tuple[Task, Any],
    student: tuple[Task, Any],
    mesh: Mesh,
    teacher_metrics: Mapping[str, float],
    student_metrics: Mapping[str, float],
) -> dict[str, float]:
    """Size, speed and best metric of both, as `teacher_parameters` and so on; prints a table.

    Args:
        teacher: the task of the finished teacher, and its parameters on the mesh.
        student: the same for the student.
        mesh: devices.
        teacher_metrics: the validation metrics of the teacher.
        student_metrics: the same of the student.
    """
    metric = teacher[0].evaluator.best_metric[0]
    names, formats = ("parameters", "ms_per_text", metric), ("{:,.0f}", "{:.2f}", "{:.4f}")
    metrics = teacher_metrics, student_metrics
    speeds = _milliseconds_per_text([_prediction(*model, mesh) for model in (teacher, student)])
    figures = {
        model: (_parameter_count(task), speed, _score(measured, metric))
        for model, (task, _), speed, measured in zip(
            ("teacher", "student"), (teacher, student), speeds, metrics, strict=True
        )
    }
    shares = (
        f"{100 * own / its:.1f} %" if its > 0 else "-"
        for its, own in zip(*figures.values(), strict=True)
    )
    rows = [[model, *map(str.format, formats, values)] for model, values in figures.items()]
    if is_main_host():
        for row in (["", *names], *rows, ["share", *shares]):
            say("  ".join(cell.rjust(14) for cell in row).rstrip())
    return {
        f"{model}_{name}": value
        for model, values in figures.items()
        for name, value in zip(names, values, strict=True)
    }


def _parameter_count(task: Task) -> int:
    """Number of parameters of the model that a task exports."""
    shapes = abstract_params(task.description.make_module(Execution()))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def _prediction(task: Task, params: Any, mesh: Mesh) -> tuple[Callable[[], Any], int]:
    """Predicts validation texts as `bert-jax predict` does, and their number.

    For pre-training they are the rows of a batch of an evaluation.
    """
    if isinstance(evaluator := task.evaluator, LabelledEvaluator):
        items = [example.input for example in evaluator.splits.validation[0].examples[:_TEXTS]]
        engine = Engine(evaluator.predictor(task.model(params, mesh)))
        return lambda: engine.predict(items), len(items)
    assert isinstance(task, CorpusTask), "the only other kind"
    rows = next(task.evaluation_batches(host=0, hosts=1))
    batch = to_global(mesh, rows)
    step = functools.partial(task.loss_step, mesh, params, batch)
    return lambda: jax.block_until_ready(step()), len(rows["input_ids"])


def _milliseconds_per_text(predictions: list[tuple[Callable[[], Any], int]]) -> list[float]:
    """The time of each; they take turns, so that all are slow while something else is computed."""
    for predict, _ in predictions:
        predict()  # compiles
    seconds = [math.inf] * len(predictions)
    for _ in range(_PASSES):
        for number, (predict, _) in enumerate(predictions):
            began = time.perf_counter()
            predict()
            seconds[number] = min(seconds[number], time.perf_counter() - began)
    least = zip(seconds, predictions, strict=True)
    return [float(each) for each in from_main_host([1000 * s / count for s, (_, count) in least])]


def _score(metrics: Mapping[str, float], name: str) -> float:
    """A metric; of several validation sets the mean, as it chooses the best checkpoint."""
    values = [value for key, value in metrics.items() if key.endswith(f"_{name}")]
    return metrics[name] if name in metrics else sum(values) / len(values)
