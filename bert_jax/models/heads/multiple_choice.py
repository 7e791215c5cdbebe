"""The head of multiple choice (BERT paper, section 4.4): a score for each choice."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.errors import require_between
from bert_jax.models.activations import gelu
from bert_jax.models.comparison import Arrays, Comparison, DrawnBatch, Labels, cross_entropy
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import Classifier
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.heads.classification import HEAD as CLASSIFICATION

_CHOICES = 2


@dataclasses.dataclass(frozen=True)
class ChoiceHeadOptions(HeadOptions):
    """How a choice is scored.

    Attributes:
        kind: "pooled", dropout and a linear layer on the pooler's output; "classifier", as for
            classification; "summary", ELECTRA's.
        summary_last_dropout: dropout before the classifier of the kind "summary".
    """

    keys = ("summary_last_dropout",)
    kind: str = "pooled"
    summary_last_dropout: float = 0.1

    def __post_init__(self) -> None:
        rate = self.summary_last_dropout
        require_between("model.summary_last_dropout", rate, 0, 1, without_high=True)


class MultipleChoiceModel(Classifier):
    """One score for each choice; the encoder sees every choice as a row."""

    global_tokens = "choice"

    def setup(self) -> None:
        super().setup()
        if self._kind() == "summary":
            self.sequence_summary = self._dense(self.config.hidden_size, "sequence_summary")

    def _kind(self) -> str:
        return self.config.head_options(ChoiceHeadOptions).kind

    def _num_outputs(self) -> int:
        return 1

    def _has_transform(self) -> bool:
        return self._kind() == "classifier"

    def _has_pooler(self) -> bool:
        return self._kind() == "pooled"

    def _rate(self) -> float:
        if self._kind() == "summary":
            return self.config.head_options(ChoiceHeadOptions).summary_last_dropout
        return super()._rate()

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits of the K choices, float32 [B, K]."""
        if self._kind() == "summary":
            summary = gelu(self.sequence_summary(encoded.last_hidden_state[:, 0]))
            return self._classify(summary, deterministic).reshape(-1)
        return self._classify_text(encoded, deterministic).reshape(-1)


def _labels(draw: DrawnBatch) -> Labels:
    return {"labels": draw.classes(len(draw.ids) // _CHOICES, _CHOICES)}


# The choices of an untrained model have nearly equal scores: then the gradients of a softmax alone
# are hardly more than rounding.
def _loss(logits: Arrays, labels: Arrays, _: str) -> list[jax.Array]:
    choice, score = cross_entropy(logits["logits"], labels["labels"]), jnp.mean(logits["logits"])
    return [choice, score, choice + score]


def _losses_of_class(output: Any, *_: Any) -> list[Any]:
    score = output.logits.mean()
    return [output.loss, score, output.loss + score]


HEAD = Head(
    MultipleChoiceModel,  # heads/classification.py has the axes of "classifier"
    makes_vectors=False,
    axes=dense_axes("sequence_summary"),
    shown_by=(("classifier/kernel", "sequence_summary/kernel"),),
    shown_by_score=CLASSIFICATION.shown_by,
    options=ChoiceHeadOptions,
    label_parameters=("classifier/",),
    comparison=Comparison(
        ("logits",),
        ("choice", "mean_score", "sum"),
        _labels,
        loss=_loss,
        losses_of_class=_losses_of_class,
        choices=_CHOICES,
    ),
)
