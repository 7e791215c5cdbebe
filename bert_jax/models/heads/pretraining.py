"""BERT's two heads of pre-training (BERT paper, section 3.1)."""

from typing import Any, NamedTuple

import jax

from bert_jax.models.comparison import Arrays, Comparison, DrawnBatch, Labels, cross_entropy
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.head import Head
from bert_jax.models.heads.masked_lm import MaskedLanguageModelHead
from bert_jax.models.heads.next_sentence import NextSentenceModel


class PreTrainingOutput(NamedTuple):
    """Logits of the two pre-training heads.

    Attributes:
        prediction_logits: float32 [B, P, V], words at the P requested positions ([B, T, V] if
            none).
        seq_relationship_logits: float32 [B, 2], or [B, K, 2] for K texts per row; label 0: the
            second segment follows the first.
    """

    prediction_logits: jax.Array
    seq_relationship_logits: jax.Array


class PreTrainingModel(NextSentenceModel):
    """The encoder with the masked-language-model head and the next-sentence head."""

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> PreTrainingOutput:
        words = self.mlm_head(encoded.last_hidden_state, self.encoder.word_embeddings())
        return PreTrainingOutput(words, super()._head(encoded, deterministic))


def _labels(draw: DrawnBatch) -> Labels:
    return {"labels": draw.mask_words(), "next_sentence_label": draw.one_class(2)}


def _loss(logits: Arrays, labels: Arrays, _: str) -> list[jax.Array]:
    words = cross_entropy(logits["prediction_logits"], labels["labels"])
    pair = cross_entropy(logits["seq_relationship_logits"], labels["next_sentence_label"])
    return [words, pair, words + pair]


def _losses_of_class(output: Any, labels: Any, cross_entropy: Any) -> list[Any]:
    words = cross_entropy(output.prediction_logits, labels["labels"])
    pair = cross_entropy(output.seq_relationship_logits, labels["next_sentence_label"])
    return [words, pair, output.loss]


HEAD = Head(
    PreTrainingModel,  # its parameters belong to its two heads
    fills_masks=True,
    makes_vectors=True,
    shown_by=(("mlm_head/dense/kernel", "nsp_head/kernel"),),
    comparison=Comparison(
        ("prediction_logits", "seq_relationship_logits"),
        ("masked_lm", "next_sentence", "sum"),
        _labels,
        ("prediction_logits",),
        _loss,
        _losses_of_class,
    ),
)
