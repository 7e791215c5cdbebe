"""A model's predictions for the examples of a file, in their order and in constant memory."""

import functools
import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Examples, content_of
from bert_jax.data.outputs import Outputs, check_output, resumable_outputs
from bert_jax.data.readers.lines import STDIN, may_wait
from bert_jax.data.readers.tables import is_dataset
from bert_jax.errors import OptionError, UserError
from bert_jax.files import Request, is_remote
from bert_jax.inference.engine import Advance, Chunk, Engine
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.output_cache import model_fingerprint
from bert_jax.inference.streams import bursts, progress_bar
from bert_jax.process import say
from bert_jax.tasks import find_task, task_names
from bert_jax.tasks.base.predict_spec import (
    ERROR,
    MARK,
    SKIP,
    PredictOptions,
    PredictSpec,
    Write,
    check_kept_columns,
)
from bert_jax.tasks.base.predictor import ExampleError

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


def predict(
    model: LoadedModel,
    task: str | None,
    source: str | Path,
    target: str | Path,
    values: Mapping[str, Any] = _NO_OPTIONS,
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Predicts every example of a file, or of a pipe as they arrive.

    As JSON lines, each record has the columns or keys of its example, or the columns of
    `keep_columns`, followed by the prediction:

        embed               {"embedding": [D]}
        token_vectors       {"tokens": [n], "vectors": [n][X]}
        fill_mask           {"fillings": [[{"token", "token_id", "score", "text"}, …], …]}, by mask
        hidden_states       {"tokens": [T], "offsets": [[start, end], …], "hidden_states": …}
        attentions          {"tokens": [T], "attentions": [L][N][T][T]}
        alignments          {"generation", "source_tokens": [T], "tokens": [U], "cross_attentions"}
        classification      {"label", "score", "probabilities"}, for a regression {"value"}
        tagging             {"words", "tags", "scores", "entities": [{"type", "text", …}, …]}
        question_answering  {"answer", "start", "end", "score"}, "no_answer_score" and "n_best"
        multiple_choice     {"index", "choice", "score", "probabilities"}
        similarity          {"similarity"}
        sparse_vectors      {"weights": {token: weight, …}}, the largest first

    A label of the example with the name of an output field becomes "expected"; with the option
    `bad_rows=mark`, a row that cannot be read or predicted has {"error"}. Other formats:
    "glue" for classification, a table of the id, or of `keep_columns`, and the label; "conll" for
    tagging, "squad" for question answering.

    Args:
        model: a model with the head that the task needs.
        task: name of a module of `bert_jax.tasks` with `PREDICT`; None: the task of the model's
            head.
        source: the input: a file, "-" for stdin, or "tfds:…".
        target: the output, "-" for stdout. A file appears when it is complete; until then its rows
            are in the directory TARGET.partial, from which the next call with the same model,
            options and input continues after a stop, an error or a kill; the result is the same to
            the byte. Inputs and outputs that are pipes start anew. Only a file that bert_jax wrote
            is replaced: it is listed in `bert_jax.json` beside it.
        values: options of reading, of batches and of the task, by the names of the fields of its
            `PredictSpec.options`; others are refused.
        stopped: whether to stop; called after each batch and each prediction.

    Returns:
        The number of predictions, and of marked rows.

    Raises:
        UserError: an option is wrong, an example is malformed or cannot be predicted (with file and
            line; see `PredictOptions.bad_rows`), a file cannot be read or written, TARGET exists
            and is not from bert_jax, or TARGET.partial has predictions of another request or of
            other examples.
        KeyboardInterrupt: `stopped` returned True; the message is empty or says that predictions
            are kept.
    """
    check_request(None, source, target)  # the options are read for the model's task
    task, spec = task_of(model, task)
    options = spec.read_options(task, target, values)
    engine: Engine[Any, Any] = Engine(spec.predictor(model, options))
    chunks = functools.partial(engine.run, strict=options.bad_rows == ERROR, report=True)
    with spec.reader.open(source, options) as examples:
        request = functools.partial(request_of, model, task, options)
        return predict_stream(examples, source, target, chunks, spec, options, request, stopped)


Chunks = Callable[..., Iterator[Chunk[Any, Any]]]
"""(examples, advance=…) → chunks with their predictions, see `Engine.run`."""


def predict_stream(
    examples: Examples[Any],
    source: str | Path,
    target: str | Path,
    chunks: Chunks,
    spec: PredictSpec[Any, Any],
    options: PredictOptions,
    request: Request,
    stopped: Callable[[], bool],
) -> int:
    """Writes the predictions of examples of a source; see `predict`, and `request_of`."""
    kept = None if may_wait(source) else request  # a pipe is predicted anew
    open_files = functools.partial(resumable_outputs, target, request=kept)
    with spec.writer(options, open_files) as (write, outputs):
        return _Job(chunks, options, write, outputs, stopped).predict(examples, source)


class _Job:
    """The prediction of one input.

    Attributes:
        count: number of examples that are predicted or bad.
        bad: number of bad rows.
        first: the first of them and why it is bad.
    """

    def __init__(
        self,
        chunks: Chunks,
        options: PredictOptions,
        write: Write[Any, Any],
        outputs: Outputs,
        stopped: Callable[[], bool],
    ) -> None:
        self.count, self.bad, self.first = 0, 0, ""
        self._chunks, self._options = chunks, options
        self._write, self._outputs = write, outputs
        self._bad_rows = outputs.bad_rows  # what became of those so far
        self._stopped = stopped
        self._digest = hashlib.sha256()
        # Examples that were read and wait for their prediction, at most two chunks.
        self._waiting: deque[Example[Any]] = deque()

    def predict(self, examples: Examples[Any], source: str | Path) -> int:
        """Predicts all examples; returns the number of rows that are written."""
        following = examples.with_errors()
        if self._outputs.rows:
            self._skip(following, source)
        enabled = self._options.progress
        with progress_bar(examples.estimated_total, enabled=enabled, initial=self.count) as show:
            for batch in bursts(following) if may_wait(source) else (following,):
                self._predict(batch, show)
        if self.bad:
            how = "marked" if self._options.bad_rows == MARK else "skipped"
            say(f"bad rows {how}: {self.bad:,}; the first: {self.first}")
        return self.count - (self.bad if self._options.bad_rows == SKIP else 0)

    def _predict(self, examples: Iterable[Example[Any]], show: Advance) -> None:
        before = self.count

        def advance(count: int) -> None:
            show(count)
            self._check_stop()  # the first prediction of a chunk may be the last to be computed

        try:
            for chunk in self._chunks(self._inputs(examples), advance=advance):
                for prediction in chunk.predictions:
                    example = self._waiting.popleft()
                    if isinstance(prediction, ExampleError):
                        self._write_bad(example, prediction)
                    else:
                        self._write(example, prediction)
                    self._done(example)
                if chunk.is_full:
                    self._outputs.mark(self.count, self._digest.hexdigest(), self._bad_rows)
        except ExampleError as error:
            example = self._waiting[before + (error.index or 0) - self.count]
            raise error.at(example.location) from error

    def _inputs(self, examples: Iterable[Example[Any]]) -> Iterator[Any]:
        for example in examples:
            error = example.error
            if error is not None and self._options.bad_rows == ERROR:
                raise _with_remedy(error) if self.count or self._waiting else error
            if not (error or self.count or self._waiting):
                check_kept_columns(example, self._options)
            self._waiting.append(example)
            yield example.input if error is None else ExampleError(str(error))

    def _write_bad(self, example: Example[Any], error: ExampleError) -> None:
        problem = example.error or error.at(example.location)
        self.bad, self._bad_rows = self.bad + 1, self._options.bad_rows
        self.first = self.first or str(problem)
        if self._options.bad_rows == MARK:
            self._write(example, problem)

    def _skip(self, examples: Iterator[Example[Any]], source: str | Path) -> None:
        """Reads the examples that an earlier call has predicted."""
        outputs = self._outputs
        if outputs.bad_rows not in ("", self._options.bad_rows):
            rule = f"give {{bad_rows={outputs.bad_rows}}}, or remove that directory to start anew"
            problem = f"{outputs.directory} has predictions with other bad rows"
            raise OptionError("bad_rows", None, rule, problem)
        for example in itertools.islice(examples, outputs.rows):
            self._done(example)
        if (self.count, self._digest.hexdigest()) != (outputs.rows, outputs.digest):
            raise UserError(
                f"{source}: the first {outputs.rows:,} examples differ from the ones predicted in "
                f"{outputs.directory}; give the same input, remove that directory to start "
                "anew, or give another output"
            )
        say(f"{outputs.directory}: continuing after {self.count:,} predictions")

    def _done(self, example: Example[Any]) -> None:
        self.count += 1
        self._digest.update(content_of(example))
        self._check_stop()

    def _check_stop(self) -> None:
        if self._stopped():
            kept = self._outputs.kept
            message = f"stopped; the same command continues after {kept:,} predictions"
            raise KeyboardInterrupt(*[message] * (kept > 0))


def _with_remedy(error: UserError) -> UserError:
    """The error of a row after others, with the option that leaves it out."""
    rule = "or leave such rows out with {bad_rows=skip}"
    if isinstance(error, OptionError):
        return OptionError(error.key, error.value, f"{error.rule}; {rule}", error.problem)
    return OptionError("bad_rows", None, rule, str(error))


def request_of(model: LoadedModel, task: str, options: PredictOptions) -> dict[str, Any]:
    """Everything that predictions depend on, except the input and its bad rows."""
    others = ("progress", "bad_rows")
    return {
        **{key: value for key, value in vars(options).items() if key not in others},
        "task": task,
        **model_fingerprint(model),
        **{f"{side}_model": model_fingerprint(each)["model"] for side, each in model.sides.items()},
    }


def check_request(
    task: str | None,
    source: str | Path,
    target: str | Path,
    values: Mapping[str, Any] = _NO_OPTIONS,
) -> None:
    """Checks everything that needs no model.

    Raises:
        UserError: the task, format or input does not exist, or the output cannot be created.
    """
    if task is not None:
        find_task(task, "PREDICT").PREDICT.read_options(task, target, values)
    check_output(target, [source])
    if str(source) == STDIN or is_dataset(source) or is_remote(source):
        return
    if not Path(source).exists():
        raise UserError(f"{source} does not exist; give another input")


def task_of(model: LoadedModel, name: str | None) -> tuple[str, PredictSpec[Any, Any]]:
    """The named task, else the task of the model's head: its name and its specification.

    Raises:
        UserError: the task does not exist, or the model has another head.
    """
    head = model.description.head
    if name is None:
        if model.description.head_error:
            raise UserError(model.description.head_error)
        name = _default_task(model.description)
    task: PredictSpec[Any, Any] = find_task(name, "PREDICT").PREDICT
    if task.heads and head not in task.heads:
        raise UserError(
            f"task {name!r} needs a model with the head "
            f"{' or '.join(task.heads)}, but this model's head is "
            f"{head or 'unknown'}; give one that is trained for the task"
        )
    return name, task


def _default_task(description: ModelDescription) -> str:
    """The task of the vectors that the model's files describe, else of its head."""
    stored, head = description.stored_vectors, description.head
    if stored is not None and head in stored.heads:
        return stored.method
    if description.is_bare:
        return description.vectors.method
    names = task_names("PREDICT")
    specs = {name: find_task(name, "PREDICT").PREDICT for name in names}
    fitting = [name for name, spec in specs.items() if head in spec.heads]
    able = [name for name in fitting if specs[name].is_default] or fitting
    if len(able) == 1:
        return able[0]
    raise OptionError(
        "task",
        None,
        f"give a task, one of {', '.join(able or names)}",
        problem=f"{len(able) or 'no'} tasks predict with the head of the model, "
        f"{head or 'unknown'}",
    )
