"""Validation metrics of any task: losses over batches, or those of the predictions users get."""

from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.errors import OptionError, renamed_options
from bert_jax.files import atomic_directory
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.streams import predict_examples
from bert_jax.sharding.hosts import batch_share, is_main_host
from bert_jax.sharding.mesh import explain_out_of_memory
from bert_jax.tasks.base.labelled_task import LabelledTask
from bert_jax.tasks.base.splits import EvalSet
from bert_jax.tasks.base.task import Task, mean_losses


def evaluate(
    task: Task, params: Any, mesh: Mesh, directory: Path | None = None
) -> dict[str, float]:
    """Metrics on the validation examples, the same for any mesh up to rounding.

    Those of a labelled task are computed from predictions; of several validation sets, each metric
    has the name of its set before it. Those of another task are means over `evaluation_batches`.

    Args:
        task: with its data open.
        params: parameters of its module, on the mesh.
        mesh: the devices.
        directory: where the predictions and reports of a labelled task are written, those of its
            test sets too; None: nowhere.

    Raises:
        UserError: a set has no labels and there is no directory for its predictions.
    """
    if isinstance(task, LabelledTask):
        return _evaluate_predictions(task, params, mesh, directory)
    share = batch_share(mesh)
    batches = task.evaluation_batches(
        host=share.index, hosts=share.count, divisor=mesh.shape["data"] * mesh.shape["fsdp"]
    )
    rule = "lower {global_batch_size} or raise {microbatches}"
    work = "a batch of the evaluation, with the rows of a micro-batch"
    with explain_out_of_memory(work, "global_batch_size", rule):
        return mean_losses(task, task.loss_step(mesh), params, batches, mesh)


def _evaluate_predictions(
    task: LabelledTask[Any, Any], params: Any, mesh: Mesh, directory: Path | None
) -> dict[str, float]:
    report = LoadReport((), (), ())
    description = task.description
    model = LoadedModel(
        description.config, task.module, params, task.tokenizer, description, report, mesh
    )
    metrics: dict[str, float] = {}
    validation = task.splits.validation
    for eval_set in validation:
        if directory is None and not task.is_labelled(eval_set):
            raise OptionError(
                "output",
                None,
                "give a directory with {output} to have it predicted",
                problem=f"{eval_set.source} has no labels",
            )
        predictions = _predictions(task, model, eval_set)
        if task.is_labelled(eval_set):
            if eval_set is validation[0]:
                task.calibrate(eval_set.examples, predictions)
            metrics |= task.named(eval_set, task.metrics(eval_set.examples, predictions))
        _write(task, directory, eval_set, predictions)
    if directory is not None:
        for eval_set in task.splits.test:
            _write(task, directory, eval_set, _predictions(task, model, eval_set))
    # Only a training chooses the best checkpoint.
    return metrics | task.best(metrics) if task.splits.train and metrics else metrics


def _predictions(
    task: LabelledTask[Any, Any], model: LoadedModel, eval_set: EvalSet[Any]
) -> list[Any]:
    inputs = map(task.predictor_input, eval_set.examples)
    with renamed_options(max_length="length", batch_size="global_batch_size"):  # keys of a config
        return list(predict_examples(model, task.predictor(model), inputs))


def _write(
    task: LabelledTask[Any, Any],
    directory: Path | None,
    eval_set: EvalSet[Any],
    predictions: list[Any],
) -> None:
    if directory is not None and is_main_host():
        with atomic_directory(directory) as folder:
            task.write(folder, eval_set, predictions)
