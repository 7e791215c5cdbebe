"""What a task of `bert-jax predict` is: how it reads, what it asks, how its answers are written."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from bert_jax.data.readers.rows import Row, Rows
from bert_jax.data.readers.tables import TableOptions
from bert_jax.data.readers.texts import TextOptions
from bert_jax.data.records import Output, to_json
from bert_jax.errors import UserError
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor

Item = TypeVar("Item")
Answer = TypeVar("Answer")

JSONL = "jsonl"
EXPECTED = "expected"
"""What the right answer of a row is called where its own name is that of our answer."""

Write = Callable[[Row[Item], Answer], None]
Format = Callable[[Output, PredictOptions], AbstractContextManager[Write[Item, Answer]]]
"""Opens a form of output; what it gives writes one answer after the other."""


@dataclasses.dataclass(frozen=True)
class PredictionTask(Generic[Item, Answer]):
    """One thing that can be asked of every row of an input.

    Attributes:
        open: opens an input; rows come one by one.
        predictor: how a model predicts items, with the options that concern the task.
        formats: the forms of output by their names; "jsonl" is one of them.
        endings: those that files of another form have, as {".tsv": "glue"}.
        heads: one of which the model must have; (): any.
    """

    open: Callable[[str | Path, PredictOptions], AbstractContextManager[Rows[Item]]]
    predictor: Callable[[Model, PredictOptions], Predictor[Item, Answer]]
    formats: Mapping[str, Format[Item, Answer]]
    endings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heads: tuple[Head, ...] = ()

    def output_format(self, target: str | Path, options: PredictOptions) -> str:
        """The form of an output: as told, else by the ending of its name.

        Raises:
            UserError: the task has no such form.
        """
        form = options.output_format
        if form is None:
            return self.endings.get(Path(target).suffix.lower(), JSONL)
        if form not in self.formats:
            known = ", ".join(self.formats)
            raise UserError(f"output_format {form!r} is unknown; this task has {known}")
        return form


def json_lines(
    as_record: Callable[[Item, Answer], Mapping[str, Any]],
) -> Format[Item, Answer]:
    """The form in which each row is an object: its other columns, and then the answer.

    Args:
        as_record: the fields of an answer.
    """

    @contextlib.contextmanager
    def opened(output: Output, options: PredictOptions) -> Iterator[Write[Item, Answer]]:
        def write(row: Row[Item], answer: Answer) -> None:
            output.write(to_json(_join(row, as_record(row.item, answer))) + "\n")

        yield write

    return opened


def batch_options(options: PredictOptions, batch_size: int = 32) -> BatchOptions:
    """Sizes of batches; `batch_size` is the task's default."""
    return BatchOptions(options.batch_size or batch_size, options.max_length)


def table_options(options: PredictOptions, form: str) -> TableOptions:
    """How the fields of a table are read."""
    return TableOptions(form, header=options.header, quotes=options.quotes)


def text_options(options: PredictOptions) -> TextOptions:
    """How texts are read, in the words of the config."""
    return TextOptions(
        format=options.input_format or "",
        header=options.header,
        quotes=options.quotes,
        text_column=options.text_column or "",
        pair_column=options.pair_column or "",
        label_column=options.label_column or "",
        id_column=options.id_column or "",
        empty="keep",
    )


def _join(row: Row[Item], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a row; nothing of either side is overwritten."""
    is_renamed = row.gold in answer
    if is_renamed and row.gold in row.other and EXPECTED in row.other:
        raise UserError(
            f"{row.place}: {row.gold!r} is what the answer is called, and {EXPECTED!r} what the "
            "row's own would be; rename one of them"
        )
    other = {
        EXPECTED if is_renamed and key == row.gold else key: value
        for key, value in row.other.items()
    }
    for key in answer:
        if key in other:
            raise UserError(f"{row.place}: {key!r} is what the answer is called; rename it")
    return {**other, **answer}
