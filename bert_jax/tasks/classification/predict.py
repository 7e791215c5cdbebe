"""Labels and scores of texts (paper, figure 4, a and b): JSON lines, or GLUE's submissions."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import MULTI_LABEL, REGRESSION, ModelDescription, problem_type
from bert_jax.checkpoints.sentence_transformers.cross_encoder import (
    check_computed,
    stored_activation,
)
from bert_jax.data.examples import Example, Text
from bert_jax.data.outputs import Layout, float32_repr, table_line
from bert_jax.errors import OptionError, UserError
from bert_jax.models.activations import PYTORCH_ACTIVATIONS
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.base.predict_spec import (
    TEXTS,
    OutputFile,
    PredictOptions,
    PredictSpec,
    TextPredictOptions,
    kept_columns,
)
from bert_jax.tasks.base.predictor import BatchOptions, Model, check_finite, check_head, softmax
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding

# The probability above which one of several labels applies, as in Hugging Face's pipelines.
THRESHOLD = 0.5

# The maximum number of labels with probabilities in a prediction: 100,000 would be 3 MB.
MOST_PROBABILITIES = 1000

# The column of the labels in a table of predictions.
_PREDICTION = "prediction"


@dataclasses.dataclass(frozen=True)
class ClassificationPredictOptions(TextPredictOptions):
    """The options of `bert-jax predict` for labels.

    Attributes:
        raw_scores: whether scores are the model's outputs, without an activation such as softmax.
    """

    raw_scores: bool = False


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

    With `raw_scores`, and for a regression with several values, `score` and `probabilities` are
    the model's outputs themselves (for an empty tuple, `score` is the greatest).
    """

    label: str | tuple[str, ...]
    score: float
    probabilities: dict[str, float]


TextPrediction = Classification | float
"""A model with one output predicts a number: the value of a regression, or a score."""


class ClassificationPredictor(TextPredictor[Any]):
    """The logits of all labels for each text, float32 [C], or the score of a single output, [1]."""

    def __init__(self, model: Model, options: BatchOptions, *, raw_scores: bool = False) -> None:
        """For arguments see `LoadedModel.classify`.

        Raises:
            UserError: the model has no classifier of texts, a problem type or an activation that
                is not known, or a rule for its texts that is not computed.
        """
        check_head(model, PREDICT.heads, "classify texts")
        check_computed(model.description.other)
        super().__init__(model, options)
        self.raw_scores = raw_scores
        name = "Identity" if raw_scores else score_activation(model.description)
        self._activation = PYTORCH_ACTIVATIONS[name]

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return self._activation(super().compute(batch))

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> Any:
        return check_finite(output.copy(), "the scores of a text")


class LabelPredictor(ClassificationPredictor):
    """The `Classification` of each text, or the number of a model with one output."""

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> TextPrediction:
        scores = super().decode_row(encoding, output)
        return to_prediction(self.model.description, scores, raw_scores=self.raw_scores)


def to_prediction(
    description: ModelDescription, scores: np.ndarray, *, raw_scores: bool = False
) -> TextPrediction:
    """The prediction from the outputs for a text, see `ClassificationPredictor`."""
    kind = problem_type(description)
    if kind == REGRESSION and len(scores) == 1:
        return float(scores[0])
    labels, exact = label_names(description), scores.astype(np.float64)
    probabilities = np.exp(-np.logaddexp(0, -exact)) if kind == MULTI_LABEL else softmax(scores)
    is_raw = raw_scores or kind == REGRESSION
    values = exact if is_raw else probabilities
    if kind == MULTI_LABEL:
        applies = probabilities > THRESHOLD
        label = tuple(name for name, is_true in zip(labels, applies, strict=True) if is_true)
        none = exact.max() if is_raw else (1 - probabilities).prod()
        score = values[applies].min() if label else none
        return Classification(label, float(score), _by_label(labels, values))
    best = int(scores.argmax())
    return Classification(labels[best], float(values[best]), _by_label(labels, values))


def score_activation(description: ModelDescription) -> str:
    """The function of the output of a classifier with one, by PyTorch's name; else the identity.

    It is the function that the files store, as for sentence-transformers' CrossEncoder; else, as in
    Hugging Face's pipelines, the sigmoid, and none for a regression.

    Raises:
        UserError: a function is stored that is not one of PyTorch's simple ones.
    """
    if problem_type(description) != REGRESSION or description.config.num_labels > 1:
        return "Identity"
    stored = stored_activation(description.other)
    if stored is None:
        return "Identity" if description.problem_type == REGRESSION else "Sigmoid"
    package, _, name = str(stored).rpartition(".")
    if not package.startswith("torch") or name not in PYTORCH_ACTIVATIONS:
        known = ", ".join(PYTORCH_ACTIVATIONS)
        raise UserError(
            f"config.json: activation_fn is {stored!r}; known are torch's {known}: set raw_scores "
            "for the scores without it"
        )
    return name


def to_record(prediction: TextPrediction) -> dict[str, Any]:
    """A prediction as a JSON object; numbers have the digits of a float32."""
    if isinstance(prediction, float):
        return {"value": float32_repr(prediction)}
    probabilities = {name: float32_repr(value) for name, value in prediction.probabilities.items()}
    return {
        "label": prediction.label,
        "score": float32_repr(prediction.score),
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

    def row(example: Example[Text], prediction: TextPrediction) -> str:
        if isinstance(prediction, float):
            label = f"{prediction:.3f}"
        elif isinstance(prediction.label, str):
            label = prediction.label
        else:
            label = ",".join(prediction.label)
        first = [example.id] if keep is None else kept_columns(example, keep).values()
        return table_line([*first, label])

    head = table_line([*(("index",) if keep is None else keep), _PREDICTION])
    return (OutputFile(row, Layout(head=head, empty=head)),)


def _by_label(labels: tuple[str, ...], probabilities: np.ndarray) -> dict[str, float]:
    if len(labels) <= MOST_PROBABILITIES:
        return dict(zip(labels, probabilities.tolist(), strict=True))
    most = np.argpartition(probabilities, -MOST_PROBABILITIES)[-MOST_PROBABILITIES:]
    return {labels[number]: float(probabilities[number]) for number in np.sort(most)}


PREDICT = PredictSpec(
    TEXTS,
    ClassificationPredictOptions,
    lambda model, options: LabelPredictor(model, options, raw_scores=options.raw_scores),
    lambda text, prediction: to_record(prediction),
    {"glue": _table},
    endings={".tsv": "glue"},
    heads=("classification",),
)
