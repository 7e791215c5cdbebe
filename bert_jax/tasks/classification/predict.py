"""Labels and scores of texts (paper, figure 4, a and b): JSON lines, or GLUE's submissions."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Entry
from bert_jax.data.readers.texts import Text
from bert_jax.data.records import Output, shortest
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_task import (
    JSONL,
    PredictionTask,
    PredictOptions,
    Write,
    json_lines,
    open_texts,
)
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    Model,
    apply_model,
    check_finite,
    check_head,
    softmax,
)
from bert_jax.tasks.base.splits import label_names
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding

# The probability above which one of several labels applies, as in Hugging Face's pipelines.
THRESHOLD = 0.5


@dataclasses.dataclass(frozen=True)
class Classification:
    """The label of a text.

    Attributes:
        label: the most probable label; of a multi-label model the labels (a tuple) with a
            probability above 0.5.
        score: the probability of the label; of several, of the least probable among them (of none,
            the probability that none applies).
        probabilities: of every label, in the order of their numbers.
    """

    label: str | tuple[str, ...]
    score: float
    probabilities: dict[str, float]


TextPrediction = Classification | float
"""Of a regression, the value."""


class ClassificationPredictor(TextPredictor[Any]):
    """The scores of all labels for each text, float32 [C], before softmax."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model has no classifier of texts."""
        check_head(model, PREDICT.heads, "classify texts", "classification")
        super().__init__(model, options)
        self._model = model

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return apply_model(self._model.params, batch, module=self._model.module)

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> np.ndarray:
        return check_finite(output.copy(), "the scores of a text")


class LabelPredictor(ClassificationPredictor):
    """A `Classification` of each text, or the value of a regression."""

    def transform(self, decoded: Iterator[np.ndarray]) -> Iterator[Any]:
        return (to_prediction(self._model.description, scores) for scores in decoded)


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
    """Hugging Face's `problem_type` of a classifier; without one, one output is a regression."""
    if description.problem_type is not None:
        return description.problem_type
    is_regression = description.config.num_labels == 1
    return "regression" if is_regression else "single_label_classification"


def as_record(prediction: TextPrediction) -> dict[str, Any]:
    """A prediction as a JSON object, with the digits that a float32 has."""
    if isinstance(prediction, float):
        return {"value": shortest(prediction)}
    probabilities = {name: shortest(value) for name, value in prediction.probabilities.items()}
    return {
        "label": prediction.label,
        "score": shortest(prediction.score),
        "probabilities": probabilities,
    }


@contextlib.contextmanager
def _glue(output: Output, options: PredictOptions) -> Iterator[Write[Text, TextPrediction]]:
    """A table of ids and labels, as the test server of GLUE reads it."""
    output.write("index\tprediction\n")

    def write(entry: Entry[Text], prediction: TextPrediction) -> None:
        if isinstance(prediction, float):
            label = f"{prediction:.3f}"
        elif isinstance(prediction.label, str):
            label = prediction.label
        else:
            label = ",".join(prediction.label)
        fields = (re.sub(r"[\t\r\n]", " ", field) for field in (entry.id, label))
        output.write("\t".join(fields) + "\n")

    yield write


def _by_label(labels: tuple[str, ...], probabilities: np.ndarray) -> dict[str, float]:
    return dict(zip(labels, probabilities.tolist(), strict=True))


PREDICT = PredictionTask(
    open_texts,
    lambda model, options: LabelPredictor(model, options.batches()),
    {JSONL: json_lines(lambda text, prediction: as_record(prediction)), "glue": _glue},
    endings={".tsv": "glue"},
    heads=(Head.CLASSIFICATION,),
)
