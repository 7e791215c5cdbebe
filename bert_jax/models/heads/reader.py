"""The head of DPR's reader (https://arxiv.org/abs/2004.04906, section 6.1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.comparison import Comparison, DrawnBatch, Labels
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead
from bert_jax.models.head import Head, dense_axes


class ReaderOutput(NamedTuple):
    """Start and end logits of each token, float32 [B, T], and of each passage, float32 [B]."""

    start_logits: jax.Array
    end_logits: jax.Array
    relevance_logits: jax.Array


class ReaderModel(EncoderWithHead):
    """DPR's reader: start and end logits, and whether the passage has the answer."""

    def setup(self) -> None:
        super().setup()
        self.qa_outputs = self._dense(2, "qa_outputs")
        self.relevance = self._dense(1, "relevance")

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> ReaderOutput:
        hidden = encoded.last_hidden_state
        logits = self.qa_outputs(hidden).astype(jnp.float32)  # BT2
        relevance = self.relevance(hidden[:, 0]).astype(jnp.float32)  # B1
        return ReaderOutput(logits[..., 0], logits[..., 1], relevance[:, 0])


def _labels(draw: DrawnBatch) -> Labels:
    """Random coefficients of the logits, 0 at padding."""
    start, end = draw.generator.normal(size=(2, *draw.mask.shape)) * draw.mask / draw.mask.size
    relevance = draw.generator.normal(size=len(draw.mask)) / len(draw.mask)
    forms = {"start_logits": start, "end_logits": end, "relevance_logits": relevance}
    return {name: value.astype(np.float32) for name, value in forms.items()}


HEAD = Head(
    ReaderModel,
    makes_vectors=False,
    axes=dense_axes("relevance"),  # heads/question_answering.py has the axes of "qa_outputs"
    shown_by=(("qa_outputs/kernel", "relevance/kernel"),),
    comparison=Comparison(
        ("start_logits", "end_logits", "relevance_logits"),
        ("linear_form",),
        _labels,
        ("start_logits", "end_logits"),
    ),
)
