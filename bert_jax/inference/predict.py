"""A model's answers to a file: rows in, JSON lines out, in order and in constant memory."""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.data.lines import STDIN
from bert_jax.data.rows import TEXT, Columns, Row, open_rows
from bert_jax.errors import UserError
from bert_jax.inference import features
from bert_jax.inference.filling import fillings
from bert_jax.inference.interface import Advance, Text, TextError
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.progress import Progress
from bert_jax.inference.records import STDOUT, open_records, shortest


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """How a file is answered; each task takes what concerns it.

    Attributes:
        pooling: of "embed", see `LoadedModel.embed`.
        normalize: of "embed".
        layers: of "hidden_states" and "attentions", see there; None: the last, and all.
        combine: of "hidden_states".
        top_k: of "fill_mask".
        batch_size: the most texts computed together; None: 32, of "attentions" 8.
        max_length: the most tokens of a text; None for as many as the model takes.
        text_column: the column or key of the text.
        pair_column: that of its pair; None: "text_pair", where there is one.
        input_format: see `rows.open_rows`; None: by the ending of the file's name.
        progress: whether a bar is shown on stderr.
    """

    pooling: str = "mean"
    normalize: bool = False
    layers: tuple[int, ...] | None = None
    combine: str | None = None
    top_k: int = 5
    batch_size: int | None = None
    max_length: int | None = None
    text_column: str = TEXT
    pair_column: str | None = None
    input_format: str | None = None
    progress: bool = True


Answer = Mapping[str, Any]
Answerer = Callable[[LoadedModel, Iterator[Text], PredictOptions, Advance], Iterator[Answer]]


def predict(
    model: LoadedModel,
    task: str,
    source: str | Path,
    target: str | Path,
    options: PredictOptions = PredictOptions(),
    stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Answers every row of a file.

    Each record has the keys of its row that are no text, as an "id", and then the answer:

        embed          {"embedding": [D]}
        fill_mask      {"fillings": [[{"token", "token_id", "score", "text"}, …], …]}, by mask
        hidden_states  {"tokens": [T], "offsets": [[start, end], …], "hidden_states": …}
        attentions     {"tokens": [T], "attentions": [K][N][T][T]}

    Args:
        model: has the head that the task needs.
        task: a key of `TASKS`.
        source: the input, see `rows.open_rows`.
        target: the output, see `records.open_records`; there is none after an error.
        options: of reading, of batches and of the task.
        stopped: whether to stop; asked after each record.

    Returns:
        The number of records.

    Raises:
        UserError: an option is wrong, a row is malformed or cannot be answered (with file and
            line), or a file cannot be read or written.
        KeyboardInterrupt: it was stopped; there is no output.
    """
    check_request(task, source, target)
    columns = Columns(options.text_column, options.pair_column)
    # Rows that are read and wait for their answer: those of two windows at most.
    waiting: deque[Row] = deque()
    count = 0
    with (
        open_rows(source, columns, options.input_format) as rows,
        open_records(target) as records,
        Progress(rows.estimated_total, enabled=options.progress) as progress,
    ):

        def texts() -> Iterator[Text]:
            for row in rows:
                waiting.append(row)
                yield row.text

        try:
            for answer in TASKS[task](model, texts(), options, progress.advance):
                records.write(_join(waiting.popleft(), answer))
                count += 1
                if stopped():
                    raise KeyboardInterrupt
        except TextError as error:
            raise UserError(f"{waiting[error.index - count].place}: {error}") from error
    return count


def check_request(task: str, source: str | Path, target: str | Path) -> None:
    """What can be said before a model is loaded.

    Raises:
        UserError: there is no such task or input, or no place for the output.
    """
    if task not in TASKS:
        raise UserError(f"task {task!r} is unknown; known are {', '.join(TASKS)}")
    if str(target) != STDOUT and not Path(target).resolve().parent.is_dir():
        raise UserError(f"{Path(target).parent} is no directory; make it, or give another output")
    if str(source) == STDIN:
        return
    if not Path(source).exists():
        raise UserError(f"{source} does not exist; give another input")
    if Path(target).exists() and Path(target).samefile(source):
        raise UserError(f"{target} is input and output; give another output")


def _join(row: Row, answer: Answer) -> dict[str, Any]:
    for key in answer:
        if key in row.other:
            raise UserError(f"{row.place}: {key!r} is what the answer is called; rename it")
    return {**row.other, **answer}


def _batch_size(options: PredictOptions, default: int) -> int:
    return default if options.batch_size is None else options.batch_size


def _embed(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Answer]:
    found = features.embeddings(
        model,
        texts,
        pooling=options.pooling,
        normalize=options.normalize,
        batch_size=_batch_size(options, 32),
        max_length=options.max_length,
        advance=advance,
    )
    return ({"embedding": vector} for vector in found)


def _fill_mask(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Answer]:
    found = fillings(
        model,
        texts,
        top_k=options.top_k,
        batch_size=_batch_size(options, 32),
        max_length=options.max_length,
        advance=advance,
    )
    for masks in found:
        yield {
            "fillings": [
                [
                    {**dataclasses.asdict(filling), "score": shortest(filling.score)}
                    for filling in mask
                ]
                for mask in masks
            ]
        }


def _hidden_states(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Answer]:
    found = features.hidden_states(
        model,
        texts,
        layers=(-1,) if options.layers is None else options.layers,
        combine=options.combine,
        batch_size=_batch_size(options, 32),
        max_length=options.max_length,
        advance=advance,
    )
    for text in found:
        yield {"tokens": text.tokens, "offsets": text.offsets, "hidden_states": text.states}


def _attentions(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Answer]:
    found = features.attentions(
        model,
        texts,
        layers=options.layers,
        batch_size=_batch_size(options, 8),
        max_length=options.max_length,
        advance=advance,
    )
    for text in found:
        yield {"tokens": text.tokens, "attentions": text.weights}


TASKS: dict[str, Answerer] = {
    "embed": _embed,
    "fill_mask": _fill_mask,
    "hidden_states": _hidden_states,
    "attentions": _attentions,
}
