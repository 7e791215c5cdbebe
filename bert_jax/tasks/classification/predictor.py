"""Labels or numbers for texts: JSON lines, or the table that GLUE's submissions are made of."""

import contextlib
from collections.abc import Iterator

from bert_jax.data.readers.rows import Row
from bert_jax.inference.interface import Advance, Text
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.records import Output
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predictor import JSONL, PredictionTask, Write, json_lines
from bert_jax.tasks.base.text_predictors import open_texts
from bert_jax.tasks.classification.decoding import (
    SUBMISSION_HEAD,
    Prediction,
    as_record,
    logits,
    outcome,
    submission_line,
)


def _answers(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Prediction]:
    found = logits(
        model,
        texts,
        batch_size=options.batch_size or 32,
        max_length=options.max_length,
        advance=advance,
    )
    return (outcome(model.description, scores) for scores in found)


@contextlib.contextmanager
def _glue(output: Output, options: PredictOptions) -> Iterator[Write[Text, Prediction]]:
    """A table of ids and labels, as the test server of GLUE reads it."""
    output.write(SUBMISSION_HEAD)

    def write(row: Row[Text], found: Prediction) -> None:
        output.write(submission_line(row.id, found))

    yield write


TASK = PredictionTask(
    open_texts,
    _answers,
    {JSONL: json_lines(lambda text, found: as_record(found)), "glue": _glue},
    endings={".tsv": "glue"},
    architectures=("BertForSequenceClassification",),
)
