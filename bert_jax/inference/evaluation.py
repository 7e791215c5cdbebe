"""Validation metrics of a labelled task, from the predictions that users would get."""

from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.errors import UserError
from bert_jax.files import atomic_directory
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.streams import predict_examples
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.labelled_task import LabelledTask
from bert_jax.tasks.base.splits import EvalSet


def evaluate(
    task: LabelledTask[Any, Any], params: Any, mesh: Mesh, directory: Path | None = None
) -> dict[str, float]:
    """Metrics of all validation sets; of several, each metric has the name of its set before it.

    Args:
        task: splits, predictor, metrics, writers.
        params: parameters of its module, on the mesh.
        mesh: the devices.
        directory: where predictions and reports are written, those of the test sets too; None:
            nowhere.

    Raises:
        UserError: a set has no labels and there is no directory for its predictions.
    """
    report = LoadReport((), (), ())
    description = task.description
    model = LoadedModel(
        description.config, task.module, params, task.tokenizer, description, report, mesh
    )
    metrics: dict[str, float] = {}
    validation = task.splits.validation
    for part in validation:
        if directory is None and not task.is_labelled(part):
            raise UserError(f"{part.source} has no labels; give --output DIR to have it predicted")
        predictions = _predictions(task, model, part)
        if task.is_labelled(part):
            if part is validation[0]:
                task.calibrate(part.examples, predictions)
            metrics |= task.named(part, task.metrics(part.examples, predictions))
        _write(task, directory, part, predictions)
    if directory is not None:
        for part in task.splits.test:
            _write(task, directory, part, _predictions(task, model, part))
    # Only a training chooses the best.
    return metrics | task.best(metrics) if task.splits.train and metrics else metrics


def _predictions(task: LabelledTask[Any, Any], model: LoadedModel, part: EvalSet[Any]) -> list[Any]:
    inputs = map(task.predictor_input, part.examples)
    return list(predict_examples(model, task.predictor(model), inputs))


def _write(
    task: LabelledTask[Any, Any],
    directory: Path | None,
    part: EvalSet[Any],
    predictions: list[Any],
) -> None:
    if directory is not None and is_main_host():
        with atomic_directory(directory) as place:
            task.write(place, part, predictions)
