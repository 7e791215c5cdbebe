"""The head of question answering (BERT paper, section 4.2): first and last token of the answer.

The independent head scores first and last tokens separately. In the joint head the score of the
last token j depends on the first token i:

    start_i   = w · h_i                                    P(i): softmax over i
    end_ij    = v · gelu(W [h_i ; h_j])                    P(j | i): softmax over j
    no_answer = u · gelu(U [h_CLS ; Σ_i P(i) h_i])         P(no answer): sigmoid

with biases, and 512 hidden units. Both softmax functions are over the answer mask: the tokens of
the passage, and [CLS], where rows without the answer have both positions. In training, i is the
gold start; in prediction, each of the best starts, a beam.

Source: google-research/electra, finetune/qa/qa_tasks.py. There the last [SEP] is part of the mask,
and the beam has pairs that are no spans of the passage, which are dropped later; here every pair
of the beam is a span. XLNet's head is the same idea with tanh and LayerNorm.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import require_between, require_one_of
from bert_jax.models.activations import gelu
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.comparison import Arrays, Comparison, DrawnBatch, Labels, cross_entropy
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import (
    EncoderWithHead,
    PredictionHead,
    classifier_dropout,
)
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.kernels.matmul import affine
from bert_jax.models.layers import gather_positions, kernel_init

# How the end of an answer is scored.
INDEPENDENT, JOINT = _QA_HEADS = ("independent", "joint")

JOINT_SCOPE = "qa_joint"
"""The name of the joint head among the parameters of a model."""

WIDTH = 512
"""The number of hidden units of the joint head."""

BEAM_SIZE = 20
"""The number of starts of a row in its prediction, and of ends for each start."""

Params = Mapping[str, Mapping[str, jax.Array]]


@dataclasses.dataclass(frozen=True)
class QuestionAnsweringOptions(HeadOptions):
    """The head of question answering.

    Attributes:
        qa_head: "independent", or "joint", which Hugging Face's models do not have.
        qa_dropout: dropout before the outputs; most families have none.
    """

    keys = ("qa_head", "qa_dropout")
    output_keys = ("qa_head",)
    qa_head: str = INDEPENDENT
    qa_dropout: float = 0.0

    def __post_init__(self) -> None:
        require_one_of("model.qa_head", self.qa_head, _QA_HEADS)
        require_between("model.qa_dropout", self.qa_dropout, 0, 1, without_high=True)


def is_joint(config: EncoderConfig) -> bool:
    """Whether a model has the joint head."""
    return config.head_options(QuestionAnsweringOptions).qa_head == JOINT


class QuestionAnsweringOutput(NamedTuple):
    """Start and end logits of each token, float32 [B, T]."""

    start_logits: jax.Array
    end_logits: jax.Array


class JointSpanHead(nn.Module):
    """The parameters of the joint head; `joint_scores` and `span_beam` compute with them."""

    config: EncoderConfig

    @nn.compact
    def __call__(self) -> None:
        width = self.config.hidden_size
        shapes = {
            "start": (width, 1),
            "end_hidden": (2 * width, WIDTH),
            "end": (WIDTH, 1),
            "no_answer_hidden": (2 * width, WIDTH),
            "no_answer": (WIDTH, 1),
        }
        for name, (inputs, outputs) in shapes.items():
            nn.Dense(outputs, kernel_init=kernel_init(self.config), name=name)(jnp.zeros(inputs))


class QuestionAnsweringModel(EncoderWithHead):
    """Start and end logits of the answer, for each token.

    With `qa_head` "joint" it has the parameters of `JointSpanHead` instead, and returns hidden
    states; `joint_scores` and `span_beam` take them.
    """

    global_tokens = "question"

    def setup(self) -> None:
        super().setup()
        if is_joint(self.config):
            self.qa_joint = JointSpanHead(self.config)
            return
        rate, name = self.config.head_options(QuestionAnsweringOptions).qa_dropout, "qa_outputs"
        if self.config.head_act is not None:  # the class of transformers has this name
            rate, name = classifier_dropout(self.config), "classifier"
            self.prediction_head = PredictionHead(self.config, self.execution)
        self.dropout = Dropout(rate)
        self.outputs = self._dense(2, name)

    def _head(
        self, encoded: EncoderOutput, deterministic: bool
    ) -> QuestionAnsweringOutput | jax.Array:
        """The logits, or hidden states [B, T, D]."""
        if is_joint(self.config):
            if self.is_initializing():
                self.qa_joint()
            return encoded.last_hidden_state
        hidden = encoded.last_hidden_state
        if self.config.head_act is not None:
            hidden = self.prediction_head(hidden)
        hidden = self.dropout(hidden, deterministic=deterministic)
        logits = self.outputs(hidden).astype(jnp.float32)  # BT2
        return QuestionAnsweringOutput(logits[..., 0], logits[..., 1])


class JointScores(NamedTuple):
    """The joint head's scores of rows with a known start.

    Attributes:
        start_logits: float32 [B, T]; the lowest finite number outside the answer mask.
        end_logits: float32 [B, T], for this start; masked likewise.
        no_answer_logits: float32 [B].
    """

    start_logits: jax.Array
    end_logits: jax.Array
    no_answer_logits: jax.Array


class SpanBeam(NamedTuple):
    """The best spans of rows: J starts, and J ends for each, where J is at most `BEAM_SIZE`.

    Attributes:
        starts: int32 [B, J], positions, the most probable first; of equal ones the first position.
        start_scores: float32 [B, J], log P(start); -inf where there are fewer starts.
        ends: int32 [B, J, J], positions of the last tokens, in the same order.
        end_scores: float32 [B, J, J], log P(end | start); -inf where there are fewer ends.
        no_answer_logits: float32 [B].
    """

    starts: jax.Array
    start_scores: jax.Array
    ends: jax.Array
    end_scores: jax.Array
    no_answer_logits: jax.Array


def joint_scores(
    params: Params, hidden: jax.Array, passages: jax.Array, starts: jax.Array
) -> JointScores:
    """The scores of a training batch.

    Args:
        params: parameters of the head.
        hidden: [B, T, D], hidden states of the last layer.
        passages: int32 [B, 2], first position of the passage's tokens, and one past the last.
        starts: int32 [B], positions of the gold starts; 0, [CLS], if there is none.
    """
    mask = _answer_mask(passages, hidden.shape[1])
    start_logits = _start_logits(params, hidden, mask)
    end_logits = _end_logits(params, hidden, mask, starts[:, None])[:, 0]
    return JointScores(start_logits, end_logits, _no_answer_logits(params, hidden, start_logits))


def span_beam(
    params: Params,
    hidden: jax.Array,
    passages: jax.Array,
    allowed_starts: jax.Array,
    answer_length: int,
) -> SpanBeam:
    """The best spans of a batch.

    Args:
        params: parameters of the head.
        hidden: [B, T, D], hidden states of the last layer.
        passages: see `joint_scores`.
        allowed_starts: int32 [B, 2], first position where a span may begin, and one past the last.
        answer_length: maximum number of tokens of a span.
    """
    length = hidden.shape[1]
    size = min(BEAM_SIZE, length)
    position = jnp.arange(length)
    mask = _answer_mask(passages, length)
    start_logits = _start_logits(params, hidden, mask)
    start_scores, starts = jax.lax.top_k(
        jnp.where(_is_within(allowed_starts, length), jax.nn.log_softmax(start_logits), -jnp.inf),
        size,
    )  # BJ
    end_scores = jax.nn.log_softmax(_end_logits(params, hidden, mask, starts))  # BJT
    first = starts[:, :, None]
    is_end = (first <= position) & (position - first < answer_length)
    is_end &= _is_within(passages, length)[:, None]
    end_scores, ends = jax.lax.top_k(jnp.where(is_end, end_scores, -jnp.inf), size)  # BJJ
    no_answer = _no_answer_logits(params, hidden, start_logits)
    return SpanBeam(starts, start_scores, ends, end_scores, no_answer)


def _is_within(ranges: jax.Array, length: int) -> jax.Array:
    """int32 [B, 2] → bool [B, T]."""
    position = jnp.arange(length)
    return (ranges[:, :1] <= position) & (position < ranges[:, 1:])


def _answer_mask(passages: jax.Array, length: int) -> jax.Array:
    """The passage, and [CLS] at position 0: bool [B, T]."""
    return _is_within(passages, length) | (jnp.arange(length) == 0)


def _start_logits(params: Params, hidden: jax.Array, mask: jax.Array) -> jax.Array:
    logits = _apply(params["start"], hidden)[..., 0].astype(jnp.float32)
    return jnp.where(mask, logits, MASK_VALUE)


def _end_logits(params: Params, hidden: jax.Array, mask: jax.Array, starts: jax.Array) -> jax.Array:
    """[B, T, D] and int32 [B, J] → float32 [B, J, T]."""
    kernel, bias = params["end_hidden"]["kernel"], params["end_hidden"]["bias"]
    width = hidden.shape[-1]
    # W [h_i ; h_j] is the sum of two products, each computed once for all pairs; and one start at a
    # time, [B, J, T, 512] is never in memory.
    token_products = affine(1, hidden, kernel[width:], jnp.zeros_like(bias))  # BTO
    start_products = affine(1, gather_positions(hidden, starts), kernel[:width], bias)  # BJO

    def end_logits(start: jax.Array) -> jax.Array:
        return _apply(params["end"], gelu(token_products + start[:, None]))[..., 0]  # BT

    logits = jax.lax.map(end_logits, start_products.swapaxes(0, 1)).swapaxes(0, 1)
    return jnp.where(mask[:, None], logits.astype(jnp.float32), MASK_VALUE)


def _no_answer_logits(params: Params, hidden: jax.Array, start_logits: jax.Array) -> jax.Array:
    """[B, T, D] and the masked logits of the starts → float32 [B]."""
    start_probs = jax.nn.softmax(start_logits).astype(hidden.dtype)
    expected = jnp.einsum("BT,BTD->BD", start_probs, hidden)
    features = jnp.concatenate([hidden[:, 0], expected], axis=-1)
    inner = gelu(_apply(params["no_answer_hidden"], features))
    return _apply(params["no_answer"], inner)[..., 0].astype(jnp.float32)


def _apply(params: Mapping[str, jax.Array], inputs: jax.Array) -> jax.Array:
    return affine(1, inputs, params["kernel"], params["bias"])


def _labels(draw: DrawnBatch) -> Labels:
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
    makes_vectors=False,
    axes=(
        ("qa_joint/(end|no_answer)/kernel", ()),
        *dense_axes(r"qa_joint/\w+"),
        *dense_axes("qa_outputs"),
    ),
    shown_by=(("qa_outputs/kernel",), ("qa_joint/start/kernel",)),
    options=QuestionAnsweringOptions,
    label_parameters=("classifier/",),
    num_labels=2,  # first and last token, whatever the labels of the initial model
    comparison=Comparison(
        ("start_logits", "end_logits"),
        ("span",),
        _labels,
        ("start_logits", "end_logits"),
        _loss,
        reads_padding=True,
    ),
)
