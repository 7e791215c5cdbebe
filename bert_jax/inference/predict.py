"""A model's predictions for the entries of a file, in their order and in constant memory."""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.data.examples import Entry
from bert_jax.data.readers.lines import STDIN, may_wait
from bert_jax.data.readers.sources import is_dataset
from bert_jax.data.records import STDOUT
from bert_jax.errors import OptionError, UserError, renamed_options
from bert_jax.files import is_remote
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.streams import Progress, micro_batches, predict_examples
from bert_jax.models.config import Head
from bert_jax.tasks import find_task, task_names
from bert_jax.tasks.base.predict_task import PredictionTask, PredictOptions
from bert_jax.tasks.base.predictor import ExampleError

_DEFAULTS = PredictOptions()
# The attribute of a task's module.
_PREDICT = "PREDICT"
# The task of a model without a head.
_ENCODER_TASK = "embed"


def predict(
    model: LoadedModel,
    task: str | None,
    source: str | Path,
    target: str | Path,
    options: PredictOptions = _DEFAULTS,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Predicts every entry of a file, or of a pipe as they come.

    As JSON lines, each record has the columns or keys of its entry that are not part of the text,
    such as an "id", and then the prediction:

        embed               {"embedding": [D]}
        fill_mask           {"fillings": [[{"token", "token_id", "score", "text"}, …], …]}, by mask
        hidden_states       {"tokens": [T], "offsets": [[start, end], …], "hidden_states": …}
        attentions          {"tokens": [T], "attentions": [L][N][T][T]}
        classification      {"label", "score", "probabilities"}, of a regression {"value"}
        tagging             {"words", "tags", "scores", "entities": [{"type", "text", …}, …]}
        question_answering  {"answer", "start", "end", "score"}, "no_answer_score" and "n_best"
        multiple_choice     {"index", "choice", "score", "probabilities"}
        similarity          {"similarity"}

    A label of the entry with the name of an output field becomes "expected". Other formats: "glue"
    of classification, "conll" of tagging, "squad" of question answering.

    Args:
        model: has the head that the task needs.
        task: the name of a module of `bert_jax.tasks` with `PREDICT`; None: the task of the model's
            head.
        source: the input: a file, "-" for stdin, or "tfds:…".
        target: the output, see `data.records.open_output`; there is none after an error.
        options: of reading, of batches and of the task.
        stopped: whether to stop; called after each prediction.

    Returns:
        The number of predictions.

    Raises:
        UserError: an option is wrong, an entry is malformed or cannot be predicted (with file and
            line), or a file cannot be read or written.
        KeyboardInterrupt: it was stopped; there is no output.
    """
    check_request(task, source, target, options)
    chosen = _task_for(model, task)
    options = dataclasses.replace(options, output_format=chosen.output_format(target, options))
    # Entries that are read and wait for their prediction: those of two windows at most.
    waiting: deque[Entry[Any]] = deque()
    count = before = 0
    with (
        renamed_options(format="input_format"),
        chosen.open(source, options) as entries,
        chosen.writer(target, options) as write,
        Progress(entries.estimated_total, enabled=options.progress) as progress,
    ):

        def items(batch: Iterable[Entry[Any]]) -> Iterator[Any]:
            for entry in batch:
                waiting.append(entry)
                yield entry.item

        try:
            for batch in micro_batches(entries) if may_wait(source) else (entries,):
                before = count
                predictor = chosen.predictor(model, options)
                for prediction in predict_examples(
                    model, predictor, items(batch), advance=progress.advance
                ):
                    write(waiting.popleft(), prediction)
                    count += 1
                    if stopped():
                        raise KeyboardInterrupt
        except ExampleError as error:
            raise UserError(f"{waiting[before + error.index - count].place}: {error}") from error
    return count


def check_request(
    task: str | None,
    source: str | Path,
    target: str | Path,
    options: PredictOptions = _DEFAULTS,
) -> None:
    """Checks what is known before a model is loaded.

    Raises:
        UserError: there is no such task, format or input, or no place for the output.
    """
    if task is not None:
        find_task(task, _PREDICT).PREDICT.output_format(target, options)
    if is_remote(target):
        raise UserError(
            f"{target}: predictions are written to this machine; copy the file afterwards"
        )
    if str(target) != STDOUT and not Path(target).resolve().parent.is_dir():
        raise UserError(
            f"{Path(target).parent} is not a directory; make it, or give another output"
        )
    if str(source) == STDIN or is_dataset(source) or is_remote(source):
        return
    if not Path(source).exists():
        raise UserError(f"{source} does not exist; give another input")
    if Path(target).exists() and Path(target).samefile(source):
        raise UserError(f"{target} is input and output; give another output")


def _task_for(model: LoadedModel, name: str | None) -> PredictionTask[Any, Any]:
    """The named task, else the one of the model's head.

    Raises:
        UserError: there is no such task, or the model cannot do it.
    """
    head = model.description.head
    if name is None:
        name = _default_task(head)
    task: PredictionTask[Any, Any] = find_task(name, _PREDICT).PREDICT
    if task.heads and head not in task.heads:
        raise UserError(
            f"task {name!r} needs a model with the head "
            f"{' or '.join(head.value for head in task.heads)}, but this model's head is "
            f"{head.value if head else 'unknown'}; give one that is trained for the task"
        )
    return task


def _default_task(head: Head | None) -> str:
    if head is Head.ENCODER:
        return _ENCODER_TASK
    names = task_names(_PREDICT)
    able = [name for name in names if head in find_task(name, _PREDICT).PREDICT.heads]
    if len(able) == 1:
        return able[0]
    raise OptionError(
        "task",
        None,
        f"set {{task}} to one of {', '.join(able or names)}",
        problem=f"{len(able) or 'no'} tasks predict with the head of the model, "
        f"{head.value if head else 'unknown'}",
    )
