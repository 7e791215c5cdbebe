"""The head of next-sentence prediction (BERT paper, section 3.1), and of sentence order."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from bert_jax.models.comparison import Comparison, DrawnBatch, Labels, cross_entropy_of_logits
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead, classifier_dropout
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.head_options import HeadOptions


@dataclasses.dataclass(frozen=True)
class NextSentenceOptions(HeadOptions):
    """Whether there is a classifier's dropout before the head (ALBERT)."""

    dropout: bool = False


class NextSentenceModel(EncoderWithHead):
    """The encoder with the next-sentence head."""

    def setup(self) -> None:
        super().setup()
        self.nsp_dropout = Dropout(classifier_dropout(self.config))
        self.nsp_head = self._dense(2, "nsp_head")

    def _has_pooler(self) -> bool:
        return True

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> Any:
        """Logits, float32 [B, 2]; label 0: the second segment follows the first."""
        pooled = encoded.pooled
        if self.config.head_options(NextSentenceOptions).dropout:
            pooled = self.nsp_dropout(pooled, deterministic=deterministic)
        return self.nsp_head(pooled).astype(jnp.float32)


def _labels(draw: DrawnBatch) -> Labels:
    return {"labels": draw.one_class(2)}


HEAD = Head(
    NextSentenceModel,
    makes_vectors=True,
    axes=dense_axes("nsp_head"),
    shown_by=(("nsp_head/kernel",),),
    options=NextSentenceOptions,
    comparison=Comparison(("logits",), ("next_sentence",), _labels, loss=cross_entropy_of_logits),
)
