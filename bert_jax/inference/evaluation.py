"""Evaluates the model of a task on its validation and test examples."""

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.files import Journal
from bert_jax.inference.output_cache import OutputCache
from bert_jax.inference.streams import predict_examples
from bert_jax.tasks.base.predictor import Predictor
from bert_jax.tasks.base.task import EvalResult, Task


def evaluate(
    task: Task,
    params: Any,
    mesh: Mesh,
    directory: Path | None = None,
    *,
    journal: Journal | None = None,
    quiet: Container[str] = (),
) -> EvalResult:
    """The metrics of a model; the task stays as it is.

    Args:
        task: the task, which names the evaluator.
        params: parameters of `task.module`, on the mesh.
        mesh: devices of the evaluation.
        directory: see `Evaluator.evaluate`.
        journal: outputs of an earlier call, to which computed outputs are added.
        quiet: names of the sets whose cut texts are not reported on stderr.

    Raises:
        UserError: a set has no labels and there is no directory for its predictions.
        NotFiniteError: a score is not finite.
    """

    def predict(predictor: Predictor[Any, Any], examples: Iterable[Any], name: str) -> list[Any]:
        cache = None if journal is None else OutputCache(journal, name)
        return list(predict_examples(predictor, examples, cache=cache, report=name not in quiet))

    return task.evaluator.evaluate(task.model(params, mesh), predict, directory)
