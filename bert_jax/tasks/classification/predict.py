"""Labels and scores of texts (paper, figure 4, a and b): JSON lines, or GLUE's submissions."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Entry
from bert_jax.data.outputs import Layout
from bert_jax.data.readers.texts import Text
from bert_jax.data.records import shortest
from bert_jax.errors import OptionError
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_spec import (
    JSONL,
    OutputFile,
    PredictOptions,
    PredictSpec,
    json_lines,
    kept_columns,
    open_texts,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    Model,
    check_finite,
    check_head,
    softmax,
)
from bert_jax.tasks.base.splits import label_names
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding

# The probability above which one of several labels applies, as in Hugging Face's pipelines.
THRESHOLD = 0.5
# A prediction has the probabilities of at most so many labels: with 100,000 it would have 3 MB.
MOST_PROBABILITIES = 1000

# The column of the labels in a table of predictions.
_PREDICTION = "prediction"


@dataclasses.dataclass(frozen=True)
class Classification:
    """The label of a text.

    Attributes:
        label: the most probable label; for a multi-label model the tuple of all labels with a
            probability above 0.5.
        score: probability of the label; for several labels the lowest of their probabilities, for
            an empty tuple the probability that no label applies.
        probabilities: probability of every label, of the 1,000 most probable if there are more,
            in the order of their numbers.
    """

    label: str | tuple[str, ...]
    score: float
    probabilities: dict[str, float]


TextPrediction = Classification | float
"""The prediction of a regression is its value."""


class ClassificationPredictor(TextPredictor[Any]):
    """The scores of all labels for each text, float32 [C], before softmax."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model has no classifier of texts."""
        check_head(model, PREDICT.heads, "classify texts", "classification")
        super().__init__(model, options)

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> np.ndarray:
        return check_finite(output.copy(), "the scores of a text")


class LabelPredictor(ClassificationPredictor):
    """The `Classification` of each text, or the value of a regression."""

    def transform(self, decoded: Iterator[np.ndarray]) -> Iterator[Any]:
        return (to_prediction(self.model.description, scores) for scores in decoded)


def to_prediction(description: ModelDescription, scores: np.ndarray) -> TextPrediction:
    """The prediction from the scores of a text, float32 [C]."""
    kind = problem_type(description)
    if kind == "regression":
        return float(scores[0])
    labels = label_names(description)
    if kind == "multi_label_classification":
        probabilities = 1 / (1 + np.exp(-scores.astype(np.float64)))
        applies = probabilities > THRESHOLD
        least = probabilities[applies].min() if applies.any() else (1 - probabilities).prod()
        label: str | tuple[str, ...] = tuple(
            name for name, is_true in zip(labels, applies, strict=True) if is_true
        )
        return Classification(label, float(least), _by_label(labels, probabilities))
    probabilities = softmax(scores)
    best = int(scores.argmax())
    return Classification(
        labels[best], float(probabilities[best]), _by_label(labels, probabilities)
    )


def problem_type(description: ModelDescription) -> str:
    """Hugging Face's `problem_type` of a classifier; if unset, one output means regression."""
    if description.problem_type is not None:
        return description.problem_type
    is_regression = description.config.num_labels == 1
    return "regression" if is_regression else "single_label_classification"


def as_record(prediction: TextPrediction) -> dict[str, Any]:
    """A prediction as a JSON object; numbers have the digits of a float32."""
    if isinstance(prediction, float):
        return {"value": shortest(prediction)}
    probabilities = {name: shortest(value) for name, value in prediction.probabilities.items()}
    return {
        "label": prediction.label,
        "score": shortest(prediction.score),
        "probabilities": probabilities,
    }


def _table(options: PredictOptions) -> Sequence[OutputFile[Text, TextPrediction]]:
    """The table of ids and labels that the test server of GLUE reads, or chosen columns and labels.

    Raises:
        OptionError: a chosen column has the name of the column of the labels.
    """
    keep = options.keep_columns
    if keep is not None and _PREDICTION in keep:
        raise OptionError("keep_columns", keep, f"the output has its own column {_PREDICTION!r}")

    def row(entry: Entry[Text], prediction: TextPrediction) -> str:
        if isinstance(prediction, float):
            label = f"{prediction:.3f}"
        elif isinstance(prediction.label, str):
            label = prediction.label
        else:
            label = ",".join(prediction.label)
        first = [entry.id] if keep is None else kept_columns(entry, keep).values()
        return _table_line([*first, label])

    head = _table_line([*(("index",) if keep is None else keep), _PREDICTION])
    return (OutputFile(row, Layout(head=head, empty=head)),)


def _table_line(values: Iterable[Any]) -> str:
    texts = (value if isinstance(value, str) else _as_text(value) for value in values)
    return "\t".join(re.sub(r"[\t\r\n]", " ", text) for text in texts) + "\n"


def _as_text(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _by_label(labels: tuple[str, ...], probabilities: np.ndarray) -> dict[str, float]:
    if len(labels) <= MOST_PROBABILITIES:
        return dict(zip(labels, probabilities.tolist(), strict=True))
    most = np.argpartition(probabilities, -MOST_PROBABILITIES)[-MOST_PROBABILITIES:]
    return {labels[number]: float(probabilities[number]) for number in np.sort(most)}


PREDICT = PredictSpec(
    open_texts,
    lambda model, options: LabelPredictor(model, options.batches()),
    {
        JSONL: json_lines(lambda text, prediction: as_record(prediction)),
        "glue": _table,
    },
    endings={".tsv": "glue"},
    heads=(Head.CLASSIFICATION,),
)
