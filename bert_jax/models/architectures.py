"""The encoder with each of its heads (BERT paper, figures 1 and 4).

All models have the same call, see `_Model.__call__`. Their parameters are those of the encoder, in
the scope `ENCODER_SCOPE`, and those of the head next to it.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import ENCODER_SCOPE, JOINT, EncoderConfig, Head
from bert_jax.models.crf import PARAMETERS as CRF_PARAMETERS
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder, EncoderOutput, EncoderOutputs
from bert_jax.models.execution import Execution
from bert_jax.models.heads import MaskedLanguageModelHead, TransformedOutput
from bert_jax.models.joint_span_head import JointSpanHead
from bert_jax.models.layers import (
    Dense,
    dense,
    gather_positions,
    gelu,
)
from bert_jax.models.packed_rows import PackedRows


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


class QuestionAnsweringOutput(NamedTuple):
    """Start and end logits of each token, float32 [B, T]."""

    start_logits: jax.Array
    end_logits: jax.Array


class _Model(nn.Module):
    """An encoder; each model adds its head.

    The names of the parts in the parameter tree must not change: they seed initialisation and
    dropout, and runs are saved under them.
    """

    config: EncoderConfig
    execution: Execution = Execution()

    def setup(self) -> None:
        self.encoder = Encoder(
            self.config, self.execution, add_pooling_layer=self._has_pooler(), name=ENCODER_SCOPE
        )

    def _has_pooler(self) -> bool:
        """Whether the head takes the pooler's output."""
        return False

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        segment_ids: jax.Array | None = None,
        packed_rows: PackedRows | None = None,
        masked_lm_positions: jax.Array | None = None,
        next_sentence_positions: jax.Array | None = None,
        deterministic: bool = True,
        encoder_outputs: EncoderOutputs | None = None,
    ) -> Any:
        """Encodes tokens and applies the head; each model's `_head` documents the result.

        With `encoder_outputs` the result is a pair: that of the head, and the `EncoderOutput` of
        all B rows of T tokens.

        Args:
            input_ids: int32 [B, T]; for multiple choice [B, C, T], and so for the next three.
            token_type_ids: 0 or 1 for the first or second sentence; for this and the next four see
                `Encoder`.
            attention_mask: 0 for padding.
            position_ids: None for 0 … T-1.
            segment_ids: number of the text that a token of a packed row belongs to.
            packed_rows: if set, the layers compute the batch in packed rows.
            masked_lm_positions: int32 [B, P], limits word logits to P positions; None for all.
            next_sentence_positions: int32 [B, K], positions of the [CLS] of K texts per row; None
                for 0 only.
            deterministic: False for training, with dropout from the RNG stream "dropout".
            encoder_outputs: what the encoder returns beside its last layer; None: the result is
                that of the head alone.
        """

        def rows(array: jax.Array | None) -> Any:
            return None if array is None else array.reshape(-1, array.shape[-1])

        encoded = self.encoder(
            rows(input_ids),
            rows(token_type_ids),
            rows(attention_mask),
            rows(position_ids),
            segment_ids=segment_ids,
            cls_positions=next_sentence_positions,
            packed_rows=packed_rows,
            deterministic=deterministic,
            **(encoder_outputs or EncoderOutputs())._asdict(),
        )
        read = encoded
        if masked_lm_positions is not None:
            # Computed at all T positions, the vocabulary head would be a fifth of the work.
            chosen = gather_positions(encoded.last_hidden_state, masked_lm_positions)  # BPD
            read = encoded._replace(last_hidden_state=chosen)
        outputs = self._head(read, deterministic)
        leading = input_ids.shape[:-1]
        outputs = jax.tree.map(lambda array: array.reshape(*leading, *array.shape[1:]), outputs)
        return outputs if encoder_outputs is None else (outputs, encoded)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> Any:
        raise NotImplementedError

    def _dense(self, features: int, name: str) -> Dense:
        return dense(self.config, self.execution, features, name)


class MaskedLMModel(_Model):
    """The encoder with the masked-language-model head."""

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Word scores, float32 [B, P, V] at `masked_lm_positions`, or [B, T, V]."""
        return self.mlm_head(encoded.last_hidden_state, self.encoder.word_embeddings())


class NextSentenceModel(_Model):
    """The encoder with the next-sentence head."""

    def setup(self) -> None:
        super().setup()
        self.nsp_dropout = Dropout(_classifier_dropout(self.config))
        self.nsp_head = self._dense(2, "nsp_head")

    def _has_pooler(self) -> bool:
        return True

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> Any:
        """Logits, float32 [B, 2]; label 0: the second segment follows the first."""
        pooled = encoded.pooled
        if self.config.sentence_order_dropout:
            pooled = self.nsp_dropout(pooled, deterministic=deterministic)
        return self.nsp_head(pooled).astype(jnp.float32)


class PreTrainingModel(NextSentenceModel):
    """The encoder with the masked-language-model head and the next-sentence head."""

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> PreTrainingOutput:
        words = self.mlm_head(encoded.last_hidden_state, self.encoder.word_embeddings())
        return PreTrainingOutput(words, super()._head(encoded, deterministic))


class ReplacedTokenModel(_Model):
    """The encoder with ELECTRA's discriminator: whether each token was replaced."""

    def setup(self) -> None:
        super().setup()
        self.replaced_token_head = TransformedOutput(
            self.config, self.execution, 1, self.config.hidden_act
        )

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, T]."""
        return self.replaced_token_head(encoded.last_hidden_state, deterministic)[..., 0]


def _classifier_dropout(config: EncoderConfig) -> float:
    """The rate of the dropout before a classifier."""
    rate = config.classifier_dropout
    return config.hidden_dropout_prob if rate is None else rate


class _Classifier(_Model):
    """Dropout and a dense layer on vectors of the encoder."""

    def setup(self) -> None:
        super().setup()
        if self._has_transform():
            assert self.config.classifier_act is not None
            rate = _classifier_dropout(self.config)
            self.classifier: Any = TransformedOutput(
                self.config,
                self.execution,
                self._num_outputs(),
                self.config.classifier_act,
                input_rate=rate if self.config.classifier_input_dropout else 0.0,
                rate=rate,
            )
        else:
            self.dropout = Dropout(self._rate())
            self.classifier = self._dense(self._num_outputs(), "classifier")

    def _num_outputs(self) -> int:
        return self.config.num_labels

    def _rate(self) -> float:
        return _classifier_dropout(self.config)

    def _has_transform(self) -> bool:
        """Whether a dense map of [CLS] belongs to the head, in place of the pooler."""
        return False

    def _classify(self, vectors: jax.Array, deterministic: bool) -> jax.Array:
        """[..., D] → float32 [..., C]."""
        vectors = self.dropout(vectors, deterministic=deterministic)
        return self.classifier(vectors).astype(jnp.float32)

    def _classify_text(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Float32 [B, C]."""
        if self._has_transform():
            return self.classifier(encoded.last_hidden_state[:, 0], deterministic)
        return self._classify(encoded.pooled, deterministic)


class ClassificationModel(_Classifier):
    """Logits of the labels of a text or a pair; with one label, a regression."""

    def _has_transform(self) -> bool:
        return self.config.classifier_act is not None

    def _has_pooler(self) -> bool:
        return not self._has_transform()

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, C]."""
        return self._classify_text(encoded, deterministic)


class TaggingModel(_Classifier):
    """Logits of the labels of every token.

    With `use_crf` it also has the parameters of `models.crf.CRFParams`; loss and decoding use them.
    """

    def _rate(self) -> float:
        if self.config.tagging_dropout_of_hidden:
            return self.config.hidden_dropout_prob
        return super()._rate()

    def setup(self) -> None:
        super().setup()
        if self.config.use_crf:
            labels = self.config.num_labels
            shapes = ((labels, labels), (labels,), (labels,))
            for name, shape in zip(CRF_PARAMETERS, shapes, strict=True):
                self.param(name, nn.initializers.normal(self.config.initializer_range), shape)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, T, C]."""
        return self._classify(encoded.last_hidden_state, deterministic)


class QuestionAnsweringModel(_Model):
    """Start and end logits of the answer, for each token.

    With `qa_head` "joint" it has the parameters of `models.joint_span_head` instead, and returns
    hidden states; loss and decoding use them.
    """

    def setup(self) -> None:
        super().setup()
        if self.config.qa_head == JOINT:
            self.qa_joint = JointSpanHead(self.config)
        else:
            self.dropout = Dropout(self.config.qa_dropout)  # most families have none
            self.qa_outputs = self._dense(2, "qa_outputs")

    def _head(
        self, encoded: EncoderOutput, deterministic: bool
    ) -> QuestionAnsweringOutput | jax.Array:
        """The logits, or hidden states [B, T, D]."""
        if self.config.qa_head == JOINT:
            self.qa_joint()
            return encoded.last_hidden_state
        hidden = self.dropout(encoded.last_hidden_state, deterministic=deterministic)
        logits = self.qa_outputs(hidden).astype(jnp.float32)  # BT2
        return QuestionAnsweringOutput(logits[..., 0], logits[..., 1])


class ReaderOutput(NamedTuple):
    """Start and end logits of each token, float32 [B, T], and of each passage, float32 [B]."""

    start_logits: jax.Array
    end_logits: jax.Array
    relevance_logits: jax.Array


class ReaderModel(_Model):
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


class MultipleChoiceModel(_Classifier):
    """One score for each choice; the encoder sees every choice as a row."""

    def setup(self) -> None:
        super().setup()
        if self.config.choice_head == "summary":
            self.sequence_summary = self._dense(self.config.hidden_size, "sequence_summary")

    def _num_outputs(self) -> int:
        return 1

    def _has_transform(self) -> bool:
        return self.config.choice_head == "classifier"

    def _has_pooler(self) -> bool:
        return self.config.choice_head == "pooled"

    def _rate(self) -> float:
        if self.config.choice_head == "summary":
            return self.config.summary_last_dropout
        return super()._rate()

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits of the C choices, float32 [B, C]."""
        if self.config.choice_head == "summary":
            summary = gelu(self.sequence_summary(encoded.last_hidden_state[:, 0]))
            return self._classify(summary, deterministic).reshape(-1)
        return self._classify_text(encoded, deterministic).reshape(-1)


MODULES: dict[Head, type[nn.Module]] = {
    Head.ENCODER: Encoder,
    Head.PRETRAINING: PreTrainingModel,
    Head.MASKED_LM: MaskedLMModel,
    Head.NEXT_SENTENCE: NextSentenceModel,
    Head.CLASSIFICATION: ClassificationModel,
    Head.TAGGING: TaggingModel,
    Head.QUESTION_ANSWERING: QuestionAnsweringModel,
    Head.MULTIPLE_CHOICE: MultipleChoiceModel,
    Head.REPLACED_TOKENS: ReplacedTokenModel,
    Head.READER: ReaderModel,
}
