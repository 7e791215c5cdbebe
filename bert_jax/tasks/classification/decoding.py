"""Labels and scores of texts (paper, figure 4, a and b)."""

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.records import shortest
from bert_jax.errors import UserError
from bert_jax.models.config import Head
from bert_jax.tasks.base.predictor import BatchOptions, Model, check_finite
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding

# A label of a text that may have several: as Hugging Face's pipelines and we count it.
THRESHOLD = 0.5


@dataclasses.dataclass(frozen=True)
class Classification:
    """What a classifier says of a text.

    Attributes:
        label: the most probable label; of a text that may have several, the labels (a tuple) whose
            probability is above 0.5.
        score: the probability of the label; of several, of the least probable among them (of none,
            that of none of all).
        probabilities: of every label, in the order of their numbers.
    """

    label: str | tuple[str, ...]
    score: float
    probabilities: dict[str, float]


Prediction = Classification | float
"""Of a regression, the value."""


class ClassificationPredictor(TextPredictor[Any]):
    """The scores of all labels for each text, float32 [C], before softmax."""

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model has no classifier of texts."""
        if model.description.head is not Head.CLASSIFICATION:
            raise UserError(
                f"this {model.description.class_name} does not classify texts; give the directory "
                'of a model that does, and load it with load(path, task="classification")'
            )
        super().__init__(model, options)
        self._model = model

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _logits(self._model.params, batch, module=self._model.module)

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> np.ndarray:
        return check_finite(output.copy(), "the scores of a text")


class LabelPredictor(ClassificationPredictor):
    """What the scores mean: a `Classification`, or the value of a regression."""

    def transform(self, decoded: Iterator[np.ndarray]) -> Iterator[Any]:
        return (outcome(self._model.description, scores) for scores in decoded)


def outcome(description: ModelDescription, scores: np.ndarray) -> Prediction:
    """What the scores of a text, float32 [C], mean for a model."""
    kind = problem_type(description)
    if kind == "regression":
        return float(scores[0])
    labels = label_names(description)
    if kind == "multi_label_classification":
        probabilities = sigmoid(scores)
        chosen = probabilities > THRESHOLD
        least = probabilities[chosen].min() if chosen.any() else (1 - probabilities).prod()
        label: str | tuple[str, ...] = tuple(
            name for name, is_chosen in zip(labels, chosen, strict=True) if is_chosen
        )
        return Classification(label, float(least), _by_label(labels, probabilities))
    probabilities = softmax(scores)
    best = int(scores.argmax())
    return Classification(
        labels[best], float(probabilities[best]), _by_label(labels, probabilities)
    )


def as_record(found: Prediction) -> dict[str, Any]:
    """An outcome as an object of JSON, with the digits that a float32 has."""
    if isinstance(found, float):
        return {"value": shortest(found)}
    return {
        "label": found.label,
        "score": shortest(found.score),
        "probabilities": {name: shortest(one) for name, one in found.probabilities.items()},
    }


SUBMISSION_HEAD = "index\tprediction\n"
"""The first line of the tables that GLUE's test server reads."""


def submission_line(identity: str, found: Prediction) -> str:
    """A further line of such a table, under the id that the text's own row has."""
    if isinstance(found, float):
        prediction = f"{found:.3f}"
    else:
        prediction = found.label if isinstance(found.label, str) else ",".join(found.label)
    fields = (re.sub(r"[\t\r\n]", " ", field) for field in (identity, prediction))
    return "\t".join(fields) + "\n"


def problem_type(description: ModelDescription) -> str:
    """What a classifier was made for; where nobody says, one output is a regression."""
    if description.problem_type is not None:
        return description.problem_type
    is_regression = description.config.num_labels == 1
    return "regression" if is_regression else "single_label_classification"


def label_names(description: ModelDescription) -> tuple[str, ...]:
    """The names of all C labels; where nobody named them, as Hugging Face calls them."""
    count = description.config.num_labels
    return description.labels or tuple(f"LABEL_{number}" for number in range(count))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis, in double precision."""
    exponentials = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Probabilities of each label by itself, in double precision."""
    return 1 / (1 + np.exp(-scores.astype(np.float64)))


def _by_label(labels: tuple[str, ...], probabilities: np.ndarray) -> dict[str, float]:
    return dict(zip(labels, probabilities.tolist(), strict=True))


@functools.partial(jax.jit, static_argnames="module")
def _logits(params: Any, batch: dict[str, jax.Array], *, module: nn.Module) -> jax.Array:
    """A batch → float32 [B, C]."""
    found: Any = module.apply(
        {"params": params}, batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]
    )
    return found
