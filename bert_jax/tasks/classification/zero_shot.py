"""Labels that a model was not trained on, by a classifier of natural language inference.

A text has a label if it entails a sentence about the label (Yin et al. 2019, section 5). Scores are
those of transformers' pipeline "zero-shot-classification".
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError, UserError
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
    check_finite,
    softmax,
)
from bert_jax.tasks.base.text_rows import text_error
from bert_jax.tasks.classification.predict import THRESHOLD, Classification, ClassificationPredictor

TEMPLATE = "This example is {}."
"""The sentence about a label, in place of {}."""


@dataclasses.dataclass(frozen=True)
class CandidateLabels:
    """The labels that a text may have.

    Attributes:
        labels: their names, as words of a sentence.
        template: the sentence about a label, in place of {}.
        multi_label: whether a text may have any number of them; else it has one.

    Raises:
        OptionError: there is no label, one is given twice, or the template has not one {}.
    """

    labels: tuple[str, ...]
    template: str = TEMPLATE
    multi_label: bool = False

    def __post_init__(self) -> None:
        if not self.labels:
            raise OptionError("candidate_labels", (), "give one label or more")
        if len(set(self.labels)) < len(self.labels):
            raise OptionError("candidate_labels", list(self.labels), "name each label once")
        if self.template.count("{}") != 1:
            raise OptionError("template", self.template, "give one {}, for the label")

    def pairs(self, text: str) -> list[tuple[str, str]]:
        """A text with the sentence about each label."""
        return [(text, self.template.replace("{}", label)) for label in self.labels]


@dataclasses.dataclass(frozen=True)
class Entailment:
    """The labels of a model of natural language inference.

    Attributes:
        entails: number of the label entailment.
        contradicts: number of the label contradiction; without its name as in transformers'
            pipeline.
    """

    entails: int
    contradicts: int

    @classmethod
    def from_labels(cls, description: ModelDescription) -> "Entailment | None":
        """The labels of a model; None: it has no label entailment, or several."""
        names = [name.lower() for name in label_names(description)]
        found = [number for number, name in enumerate(names) if name.startswith("entail")]
        if len(found) != 1 or len(names) < 2:
            return None
        others = [number for number, name in enumerate(names) if name.startswith("contradict")]
        last = len(names) - 1 if found == [0] else 0
        return cls(found[0], others[0] if others else last)

    @classmethod
    def required(cls, description: ModelDescription) -> "Entailment":
        """The labels of a model.

        Raises:
            UserError: it has no label entailment, or several.
        """
        if found := cls.from_labels(description):
            return found
        raise UserError(
            "the model has no label entailment, which candidate labels need; give one that was "
            "trained on natural language inference"
        )

    def choose(self, candidates: CandidateLabels, outputs: np.ndarray) -> Classification:
        """The candidate label of a text.

        Args:
            candidates: the K labels.
            outputs: outputs of the model for the text with the sentence about each, float [K, C].
        """
        entails, contradicts = outputs[:, self.entails], outputs[:, self.contradicts]
        names, is_single = candidates.labels, not candidates.multi_label
        if is_single and len(names) > 1:
            scores = softmax(entails)
        else:
            scores = softmax(np.stack([contradicts, entails], axis=-1))[:, 1]
        probabilities = dict(zip(names, map(float, scores), strict=True))
        best = int(scores.argmax())
        if is_single:
            return Classification(names[best], float(scores[best]), probabilities)
        applies = scores > THRESHOLD
        score = scores[applies].min() if applies.any() else (1 - scores).prod()
        label = tuple(name for name, is_true in zip(names, applies, strict=True) if is_true)
        return Classification(label, float(score), probabilities)


class ZeroShotPredictor(Predictor[str, Classification]):
    """The candidate label of each text, see `LoadedModel.classify`."""

    def __init__(self, model: Model, options: BatchOptions, candidates: CandidateLabels) -> None:
        """Makes the predictor of the pairs of a text and a sentence about a label.

        Raises:
            UserError: the model has no label entailment; see also `ClassificationPredictor`.
        """
        super().__init__(model, options)
        self._pairs = ClassificationPredictor(model, options, raw_scores=True)
        self._candidates = candidates
        self._entailment = Entailment.required(model.description)

    def encode(self, examples: Sequence[str]) -> list[EncodedExample | ExampleError]:
        return self._pairs.encode_texts.groups(
            [text_error(text) or self._candidates.pairs(text) for text in examples]
        )

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return self._pairs.compute(batch)

    def decode(self, example: str, encoded: EncodedExample, outputs: list[Any]) -> Classification:
        scores = check_finite(np.stack(outputs), "the scores of a text")
        return self._entailment.choose(self._candidates, scores)
