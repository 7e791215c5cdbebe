"""Evaluates the model of a task on its validation and test examples."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from jax.sharding import Mesh

from bert_jax.files import Journal
from bert_jax.inference.output_cache import OutputCache
from bert_jax.inference.streams import predict_examples
from bert_jax.tasks.base.evaluation import EvalResult
from bert_jax.tasks.base.predictor import Predictor
from bert_jax.tasks.base.task import Task

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")


def evaluate(
    task: Task,
    params: Any,
    mesh: Mesh,
    directory: Path | None = None,
    *,
    kept: Journal | None = None,
    reported: set[str] | None = None,
) -> EvalResult:
    """The metrics of a model; the task stays as it is.

    Args:
        task: the task, which names the evaluator.
        params: parameters of `task.module`, on the mesh.
        mesh: devices of the evaluation.
        directory: see `Evaluator.evaluate`.
        kept: outputs of an earlier call; those that are computed are added.
        reported: names of the sets whose cut texts an earlier evaluation has reported; others are
            added.

    Raises:
        UserError: a set has no labels and there is no directory for its predictions.
        NotFiniteError: a score is not finite.
    """
    reported = set() if reported is None else reported

    def predict(
        predictor: Predictor[Example, Prediction], examples: Iterable[Example], name: str
    ) -> list[Prediction]:
        outputs = None if kept is None else OutputCache(kept, name)
        report = name not in reported
        reported.add(name)
        return list(predict_examples(predictor, examples, kept=outputs, report=report))

    return task.evaluator.evaluate(task.model(params, mesh), predict, directory)
