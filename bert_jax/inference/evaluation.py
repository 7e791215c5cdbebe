"""Evaluates the model of a task on its validation and test examples; writes what it predicts."""

from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from bert_jax.data.examples import Example
from bert_jax.errors import OptionError
from bert_jax.files import Journal, atomic_directory, write_atomically
from bert_jax.inference.engine import predict_examples
from bert_jax.inference.output_cache import OutputCache
from bert_jax.sharding.hosts import is_main_host
from bert_jax.sharding.mesh import explain_out_of_memory
from bert_jax.tasks.base.labelled_options import config_keys
from bert_jax.tasks.base.predictor import ExampleError, Predictor
from bert_jax.tasks.base.task import Content, EvalResult, Evaluator, Task


def evaluate(
    task: Task,
    params: Any,
    mesh: Mesh,
    *,
    with_test: bool = False,
    journal: Journal | None = None,
    quiet: Container[str] = (),
) -> EvalResult:
    """The metrics of a model, and its predictions; `write_result` writes them.

    Args:
        task: the task, which names the evaluator.
        params: parameters of `task.module`, on the mesh.
        mesh: devices of the evaluation.
        with_test: whether the test sets are also predicted, and evaluated if they have labels, and
            validation sets may have none.
        journal: outputs of an earlier call, to which computed outputs are added.
        quiet: names of the sets whose cut texts are not reported on stderr.

    Raises:
        OptionError: without `with_test`, a validation set has no labels; or a device ran out of
            memory.
        UserError: an example cannot be predicted; the message names its location.
        NotFiniteError: a score is not finite.
    """

    def predict(
        predictor: Predictor[Any, Any], examples: Sequence[Example[Any]], name: str
    ) -> list[Any]:
        cache = None if journal is None else OutputCache(journal, name)
        report = name.partition(".")[0] not in quiet
        inputs = (example.input for example in examples)
        try:
            with config_keys():
                return list(predict_examples(predictor, inputs, cache=cache, report=report))
        except ExampleError as error:
            raise error.at(examples[error.index or 0].location) from error

    evaluator = task.evaluator
    if not with_test and evaluator.unlabelled:
        rule = "give {output}, a directory, to have it predicted"
        raise OptionError("output", None, rule, f"{evaluator.unlabelled[0]} has no labels")
    # The batches have an explanation of their own.
    work, rule = "the metrics of an evaluation", "give fewer examples as {data.validation}"
    with explain_out_of_memory(work, "data.validation", rule):
        return evaluator.evaluate(task.model(params, mesh), predict, with_test=with_test)


def write_result(directory: Path, evaluator: Evaluator, result: EvalResult) -> None:
    """Writes the predictions and the reports of an evaluation; the main host does it.

    Args:
        directory: directory of the files; others in it are kept.
        evaluator: the evaluator that has made the result, and knows its files.
        result: the result of `evaluate`.

    Raises:
        UserError: a file cannot be written.
    """
    if result.predictions and is_main_host():
        with atomic_directory(directory) as folder:
            write_files(folder, evaluator.files(result))


def write_files(directory: Path, files: Iterable[tuple[str, Content]]) -> None:
    """Writes files to a local directory, by their names."""
    for name, content in files:
        if isinstance(content, str):
            write_atomically(directory / name, content.encode())
        else:
            content(directory / name)
