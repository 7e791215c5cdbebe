"""What a distillation has reached: size, speed and score of teacher and student."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.inference.engine import Engine
from bert_jax.inference.evaluation import evaluate
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.process import say
from bert_jax.sharding.hosts import from_main_host, is_main_host, to_global
from bert_jax.sharding.memory import array_bytes
from bert_jax.tasks.base.labelled_task import LabelledTask
from bert_jax.tasks.base.task import Task
from bert_jax.tasks.pretraining.task import PretrainingTask

# Validation texts that are timed, and how often: the fastest pass counts.
_TEXTS, _PASSES = 256, 5


def parameter_count(task: Task) -> int:
    """Number of parameters of the model that a task exports."""
    shapes = jax.tree.leaves(abstract_params(task.description.make_module(Execution())))
    return sum(array_bytes(leaf.shape, leaf.dtype) // leaf.dtype.itemsize for leaf in shapes)


def milliseconds_per_text(tasks: Sequence[tuple[Task, Any]], mesh: Mesh) -> list[float]:
    """The time to predict a validation text, with all that `bert-jax predict` does but reading.

    For pre-training it is the time of a row of an evaluation. The models take turns, so that all
    are slow while something else uses the machine.

    Args:
        tasks: tasks of finished models, and the parameters of these on the mesh.
        mesh: devices.
    """
    works = [_work(task, params, mesh) for task, params in tasks]
    for run, _ in works:
        run()  # compiles
    seconds = [math.inf] * len(works)
    for _ in range(_PASSES):
        for number, (run, _) in enumerate(works):
            began = time.perf_counter()
            run()
            seconds[number] = min(seconds[number], time.perf_counter() - began)
    found = [1000 * least / count for least, (_, count) in zip(seconds, works, strict=True)]
    return [float(value) for value in from_main_host(found)]


def _work(task: Task, params: Any, mesh: Mesh) -> tuple[Callable[[], Any], int]:
    """What is timed, and the number of its texts."""
    if isinstance(task, LabelledTask):
        items = [example.input for example in task.splits.validation[0].examples[:_TEXTS]]
        engine = Engine(task.evaluator.predictor(task.model(params, mesh)))
        return lambda: engine.predict(items), len(items)
    assert isinstance(task, PretrainingTask), "the only other task"
    (rows,) = zip(task.evaluation_batches(host=0, hosts=1), range(1), strict=False)
    batch, step = to_global(mesh, rows[0]), task.loss_step(mesh)
    return lambda: jax.block_until_ready(step(params, batch)), len(rows[0]["input_ids"])


def compare(
    teacher: tuple[Task, Any], student: tuple[Task, Any], mesh: Mesh, scores: Mapping[str, float]
) -> dict[str, float]:
    """Size, speed and best metric of both, as `teacher_parameters` and so on; prints a table.

    Args:
        teacher: the task of the finished teacher, and its parameters on the mesh.
        student: the same for the student.
        mesh: devices.
        scores: the validation metrics of the student.
    """
    result: dict[str, float] = {}
    metric = teacher[0].evaluator.best_metric[0]
    speeds = milliseconds_per_text((teacher, student), mesh)
    models = zip(("teacher", "student"), (teacher, student), speeds, strict=True)
    for name, (task, params), speed in models:
        metrics = scores if name == "student" else evaluate(task, params, mesh).metrics
        result |= {
            f"{name}_parameters": parameter_count(task),
            f"{name}_ms_per_text": speed,
            f"{name}_{metric}": _score(metrics, metric),
        }
    if is_main_host():
        say(*as_text(result).split("\n"))
    return result


def _score(metrics: Mapping[str, float], name: str) -> float:
    """A metric; of several validation sets the mean, as it chooses the best checkpoint."""
    found = [value for key, value in metrics.items() if key.endswith(f"_{name}")]
    return metrics[name] if name in metrics else sum(found) / len(found)


def as_text(result: Mapping[str, float]) -> str:
    """The result of `compare` as a table for people."""
    names = ["parameters", "ms_per_text"]
    names += [
        name.removeprefix("teacher_")
        for name in result
        if name.startswith("teacher_") and name.removeprefix("teacher_") not in names
    ]
    formats = {"parameters": "{:,.0f}", "ms_per_text": "{:.2f}"}
    rows = [["", *names]]
    for model in ("teacher", "student"):
        values = (formats.get(name, "{:.4f}").format(result[f"{model}_{name}"]) for name in names)
        rows.append([model, *values])
    of_teacher, of_student = (
        [result[f"{model}_{name}"] for name in names] for model in ("teacher", "student")
    )
    shares = (
        f"{100 * own / other:.1f} %" if other > 0 else "-"
        for own, other in zip(of_student, of_teacher, strict=True)
    )
    rows.append(["share", *shares])
    return "\n".join("  ".join(cell.rjust(14) for cell in row).rstrip() for row in rows)
