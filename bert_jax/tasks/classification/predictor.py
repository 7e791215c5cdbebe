"""Labels or numbers for texts: JSON lines, or the table that GLUE's submissions are made of."""

import contextlib
from collections.abc import Iterator

from bert_jax.data.readers.rows import Row
from bert_jax.data.records import Output
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predict_task import JSONL, PredictionTask, Write, batch_options, json_lines
from bert_jax.tasks.base.predictor import Text
from bert_jax.tasks.base.text_predictors import open_texts
from bert_jax.tasks.classification.decoding import (
    SUBMISSION_HEAD,
    LabelPredictor,
    Prediction,
    as_record,
    submission_line,
)


@contextlib.contextmanager
def _glue(output: Output, options: PredictOptions) -> Iterator[Write[Text, Prediction]]:
    """A table of ids and labels, as the test server of GLUE reads it."""
    output.write(SUBMISSION_HEAD)

    def write(row: Row[Text], found: Prediction) -> None:
        output.write(submission_line(row.id, found))

    yield write


TASK = PredictionTask(
    open_texts,
    lambda model, options: LabelPredictor(model, batch_options(options)),
    {JSONL: json_lines(lambda text, found: as_record(found)), "glue": _glue},
    endings={".tsv": "glue"},
    heads=(Head.CLASSIFICATION,),
)
