"""Which of the choices of each row fits best."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.examples import ChoiceExample
from bert_jax.data.readers.choices import (
    ANSWERS,
    CHOICES,
    FILES,
    LAYOUTS,
    PROMPTS,
    choice_of,
    layout_of,
)
from bert_jax.data.readers.rows import Row, Rows
from bert_jax.data.readers.sources import open_records
from bert_jax.data.readers.tables import Record, Table, TableOptions, format_of
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_task import (
    JSONL,
    PredictionTask,
    PredictOptions,
    json_lines,
)
from bert_jax.tasks.multiple_choice.decoding import ChoicePredictor, as_record, best_choice

# The columns that are asked about, in any layout.
_TEXTS = re.compile(
    "|".join([*PROMPTS, *CHOICES, "question", "sent1", "sent2", "startphrase"])
    + r"|(ending|answer)\d+"
)


@contextlib.contextmanager
def _open_choices(source: str | Path, options: PredictOptions) -> Iterator[Rows[ChoiceExample]]:
    """Any of `choices.LAYOUTS`, in a table or in JSON lines, which standard input has, too."""
    told = options.input_format or ""
    layout = told if told in LAYOUTS else ""
    form = format_of(source) if layout or not told else told
    reading = options.reading(TableOptions, format=form or FILES[layout] or "jsonl")
    with open_records(source, reading) as table:
        yield Rows(_rows(table, layout, options.label_column), table.fraction)


def _rows(table: Table, layout: str, label_column: str | None) -> Iterator[Row[ChoiceExample]]:
    golden = (label_column,) if label_column else ANSWERS
    for number, record in enumerate(table.records):
        # What the right answer is, and how it is spelled, is nothing to predict from.
        fields = {key: value for key, value in record.fields.items() if key not in golden}
        asked = Record(fields, record.place)
        layout = layout or layout_of(asked)
        example = choice_of(asked, layout, number, allow_empty=True)
        other = {key: value for key, value in record.fields.items() if not _TEXTS.fullmatch(key)}
        gold = next((key for key in golden if key in other), "")
        yield Row(example, other, record.place, example.id, gold)


def _as_record(example: ChoiceExample, scores: np.ndarray) -> Mapping[str, Any]:
    return as_record(best_choice(example.choices, scores))


PREDICT = PredictionTask(
    _open_choices,
    lambda model, options: ChoicePredictor(model, options.batches()),
    {JSONL: json_lines(_as_record)},
    heads=(Head.MULTIPLE_CHOICE,),
)
