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
    softmax,
    text_error,
)
from bert_jax.tasks.classification.predict import (
    THRESHOLD,
    Classification,
    ClassificationPredictor,
)

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

    def hypotheses(self) -> list[str]:
        """The sentence about each label."""
        return [self.template.replace("{}", label) for label in self.labels]


def entailment(description: ModelDescription) -> int | None:
    """The number of the label entailment of a model; None: it has none, or several."""
    names = label_names(description)
    found = [number for number, name in enumerate(names) if name.lower().startswith("entail")]
    return found[0] if len(found) == 1 and len(names) > 1 else None


def _contradiction(names: Sequence[str], entails: int) -> int:
    """The number of the label contradiction; without its name as in transformers' pipeline."""
    found = [number for number, name in enumerate(names) if name.lower().startswith("contradict")]
    return found[0] if found else len(names) - 1 if entails == 0 else 0


class ZeroShotPredictor(Predictor[str, Classification]):
    """The candidate label of each text, see `LoadedModel.classify`."""

    def __init__(self, model: Model, options: BatchOptions, candidates: CandidateLabels) -> None:
        """Makes the predictor of the pairs of a text and a sentence about a label.

        Raises:
            UserError: the model has no label entailment; see also `ClassificationPredictor`.
        """
        super().__init__(model, options)
        self._pairs = ClassificationPredictor(model, options, raw_scores=True)
        self._candidates, entails = candidates, entailment(model.description)
        if entails is None:
            raise UserError(
                "the model has no label entailment, which candidate labels need; give one that was "
                "trained on natural language inference"
            )
        self._labels = entails, _contradiction(label_names(model.description), entails)

    def encode(self, examples: Sequence[str]) -> list[EncodedExample | ExampleError]:
        hypotheses = self._candidates.hypotheses()
        return self._pairs.encode_texts.groups(
            [text_error(text) or [(text, each) for each in hypotheses] for text in examples]
        )

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return self._pairs.compute(batch)

    def decode(self, example: str, encoded: EncodedExample, outputs: list[Any]) -> Classification:
        entails, contradicts = (np.stack(outputs)[:, number] for number in self._labels)  # [K]
        names = self._candidates.labels
        is_single = not self._candidates.multi_label
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
