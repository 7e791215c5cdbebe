"""The head of question answering (BERT paper, section 4.2): first and last token of the answer."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import require_between, require_one_of
from bert_jax.models.comparison import Arrays, Comparison, Draw, Labels, cross_entropy
from bert_jax.models.config import HeadOptions
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.joint_span_head import JointSpanHead

# How the end of an answer is scored.
INDEPENDENT, JOINT = _QA_HEADS = ("independent", "joint")


@dataclasses.dataclass(frozen=True)
class QuestionAnsweringOptions(HeadOptions):
    """The head of question answering.

    Attributes:
        qa_head: "independent", which scores first and last tokens apart, or "joint", see
            `models.joint_span_head`; Hugging Face's models have no other than the first.
        qa_dropout: dropout before the outputs; most families have none.
    """

    keys = ("qa_head", "qa_dropout")
    qa_head: str = INDEPENDENT
    qa_dropout: float = 0.0

    def __post_init__(self) -> None:
        require_one_of("model.qa_head", self.qa_head, _QA_HEADS)
        require_between("model.qa_dropout", self.qa_dropout, 0, 1, without_high=True)


class QuestionAnsweringOutput(NamedTuple):
    """Start and end logits of each token, float32 [B, T]."""

    start_logits: jax.Array
    end_logits: jax.Array


class QuestionAnsweringModel(EncoderWithHead):
    """Start and end logits of the answer, for each token.

    With `qa_head` "joint" it has the parameters of `models.joint_span_head` instead, and returns
    hidden states; loss and decoding use them.
    """

    def setup(self) -> None:
        super().setup()
        options = self.config.of_head(QuestionAnsweringOptions)
        if options.qa_head == JOINT:
            self.qa_joint = JointSpanHead(self.config)
        else:
            self.dropout = Dropout(options.qa_dropout)
            self.qa_outputs = self._dense(2, "qa_outputs")

    def _head(
        self, encoded: EncoderOutput, deterministic: bool
    ) -> QuestionAnsweringOutput | jax.Array:
        """The logits, or hidden states [B, T, D]."""
        if self.config.of_head(QuestionAnsweringOptions).qa_head == JOINT:
            self.qa_joint()
            return encoded.last_hidden_state
        hidden = self.dropout(encoded.last_hidden_state, deterministic=deterministic)
        logits = self.qa_outputs(hidden).astype(jnp.float32)  # BT2
        return QuestionAnsweringOutput(logits[..., 0], logits[..., 1])


def _labels(draw: Draw) -> Labels:
    lengths = draw.mask.sum(1)
    ends = np.sort(draw.generator.integers(0, lengths, (2, len(lengths))), axis=0)
    start, end = ends.astype(np.int32)
    return {"start_positions": start, "end_positions": end}


def _loss(logits: Arrays, labels: Arrays, _: str) -> list[jax.Array]:
    start = cross_entropy(logits["start_logits"], labels["start_positions"])
    end = cross_entropy(logits["end_logits"], labels["end_positions"])
    return [(start + end) / 2]


HEAD = Head(
    QuestionAnsweringModel,
    axes=(
        ("qa_joint/(end|no_answer)/kernel", ()),
        *dense_axes(r"qa_joint/\w+"),
        *dense_axes("qa_outputs"),
    ),
    shown_by=(("qa_outputs/kernel",), ("qa_joint/start/kernel",)),
    options=QuestionAnsweringOptions,
    comparison=Comparison(
        ("start_logits", "end_logits"),
        ("span",),
        _labels,
        ("start_logits", "end_logits"),
        _loss,
        reads_padding=True,
    ),
)
