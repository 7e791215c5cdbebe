"""A model's answers to a file: rows in, answers out, in order and in constant memory."""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.data.readers.lines import STDIN, may_wait
from bert_jax.data.readers.rows import Row
from bert_jax.data.readers.sources import is_dataset
from bert_jax.data.records import STDOUT, open_output
from bert_jax.errors import UserError
from bert_jax.files import is_remote
from bert_jax.inference.micro_batches import bursts
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.predict_tasks import find_task, task_of
from bert_jax.inference.progress import Progress
from bert_jax.inference.streams import predict_examples
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predictor import ExampleError

_DEFAULTS = PredictOptions()


def predict(
    model: LoadedModel,
    task: str | None,
    source: str | Path,
    target: str | Path,
    options: PredictOptions = _DEFAULTS,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Answers every row of a file, or of a pipe as they come.

    As JSON lines, each record has the columns or keys of its row that are not asked about, as an
    "id", and then the answer:

        embed               {"embedding": [D]}
        fill_mask           {"fillings": [[{"token", "token_id", "score", "text"}, …], …]}, by mask
        hidden_states       {"tokens": [T], "offsets": [[start, end], …], "hidden_states": …}
        attentions          {"tokens": [T], "attentions": [K][N][T][T]}
        classification      {"label", "score", "probabilities"}, of a regression {"value"}
        tagging             {"words", "tags", "scores", "entities": [{"type", "text", …}, …]}
        question_answering  {"answer", "start", "end", "score"}, "no_answer_score" and "n_best"
        multiple_choice     {"index", "choice", "score", "probabilities"}
        similarity          {"similarity"}

    A right answer that the row has under the same name becomes "expected". Other forms: "glue" of
    classification, "conll" of tagging, "squad" of question answering; see `predictions/`.

    Args:
        model: has the head that the task needs.
        task: a key of `predictions.tasks.TASKS`; None: what the model is for.
        source: the input: a file, "-" for stdin, or "tfds:…".
        target: the output, see `records.open_output`; there is none after an error.
        options: of reading, of batches and of the task.
        stopped: whether to stop; asked after each answer.

    Returns:
        The number of answers.

    Raises:
        UserError: an option is wrong, a row is malformed or cannot be answered (with file and
            line), or a file cannot be read or written.
        KeyboardInterrupt: it was stopped; there is no output.
    """
    check_request(task, source, target, options)
    chosen = task_of(model.description.head, task)
    form = chosen.output_format(target, options)
    options = dataclasses.replace(options, output_format=form)
    # Rows that are read and wait for their answer: those of two windows at most.
    waiting: deque[Row[Any]] = deque()
    count = before = 0
    with (
        chosen.open(source, options) as rows,
        open_output(target) as output,
        chosen.formats[form](output, options) as write,
        Progress(rows.estimated_total, enabled=options.progress) as progress,
    ):

        def items(burst: Iterable[Row[Any]]) -> Iterator[Any]:
            for row in burst:
                waiting.append(row)
                yield row.item

        try:
            for burst in bursts(rows) if may_wait(source) else (rows,):
                before = count
                predictor = chosen.predictor(model, options)
                for answer in predict_examples(
                    model, predictor, items(burst), advance=progress.advance
                ):
                    write(waiting.popleft(), answer)
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
    """What can be said before a model is loaded.

    Raises:
        UserError: there is no such task, form or input, or no place for the output.
    """
    if task is not None:
        find_task(task).output_format(target, options)
    if is_remote(target):
        raise UserError(f"{target}: answers are written to this machine; copy the file afterwards")
    if str(target) != STDOUT and not Path(target).resolve().parent.is_dir():
        raise UserError(f"{Path(target).parent} is no directory; make it, or give another output")
    if str(source) == STDIN or is_dataset(source) or is_remote(source):
        return
    if not Path(source).exists():
        raise UserError(f"{source} does not exist; give another input")
    if Path(target).exists() and Path(target).samefile(source):
        raise UserError(f"{target} is input and output; give another output")
