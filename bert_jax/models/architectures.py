"""The encoder with each of its heads (BERT paper, figures 1 and 4).

Every model takes the ids that `Encoder` takes first, and is called in the same way; what else it
takes, it says. Its parameters are the encoder's, under `bert`, and those of its head beside them.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.crf import PARAMETERS as CRF_PARAMETERS
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.models.layers import Dense, dense, gather_positions
from bert_jax.models.packed_rows import PackedRows


class PreTrainingOutput(NamedTuple):
    """Logits of the two pre-training heads.

    Attributes:
        prediction_logits: float32 [B, P, V], words at the asked positions ([B, T, V] if none).
        seq_relationship_logits: float32 [B, 2], or [B, K, 2] for K texts of a row; label 0: the
            second segment follows the first.
    """

    prediction_logits: jax.Array
    seq_relationship_logits: jax.Array


class QuestionAnsweringOutput(NamedTuple):
    """Scores of each token as the first and as the last of the answer, float32 [B, T]."""

    start_logits: jax.Array
    end_logits: jax.Array


class _Model(nn.Module):
    """What all models have: an encoder."""

    config: EncoderConfig
    execution: Execution = Execution()

    def _head(self, features: int, name: str) -> Dense:
        return dense(self.config, self.execution, features, name)

    def _classifier_dropout(self) -> Dropout:
        rate = self.config.classifier_dropout
        return Dropout(self.config.hidden_dropout_prob if rate is None else rate)


class PreTrainingModel(_Model):
    """The masked-language-model head and the next-sentence head."""

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Encoder(self.config, self.execution)
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)
        self.nsp_head = self._head(2, "nsp_head")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        masked_lm_positions: jax.Array | None = None,
        *,
        segment_ids: jax.Array | None = None,
        next_sentence_positions: jax.Array | None = None,
        deterministic: bool = True,
    ) -> PreTrainingOutput:
        """As `Encoder`; `masked_lm_positions` int32 [B, P] limits the word scores to P positions.

        `next_sentence_positions` int32 [B, K] are those of the [CLS] of K texts of a row.
        """
        output = self.bert(
            input_ids,
            token_type_ids,
            attention_mask,
            position_ids,
            segment_ids=segment_ids,
            cls_positions=next_sentence_positions,
            deterministic=deterministic,
        )
        hidden = output.last_hidden_state
        if masked_lm_positions is not None:
            # The head over the vocabulary is a fifth of the work if all T positions pass it.
            hidden = gather_positions(hidden, masked_lm_positions)  # BPD
        return PreTrainingOutput(
            prediction_logits=self.mlm_head(hidden, self.bert.word_embeddings()),
            seq_relationship_logits=self.nsp_head(output.pooled).astype(jnp.float32),
        )


class MaskedLMModel(_Model):
    """The masked-language-model head alone."""

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Encoder(self.config, self.execution, add_pooling_layer=False)
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        masked_lm_positions: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Word scores, float32 [B, P, V] at `masked_lm_positions` int32 [B, P], or [B, T, V]."""
        hidden = self.bert(
            input_ids, token_type_ids, attention_mask, position_ids, deterministic=deterministic
        ).last_hidden_state
        if masked_lm_positions is not None:
            hidden = gather_positions(hidden, masked_lm_positions)  # BPD
        return self.mlm_head(hidden, self.bert.word_embeddings())


class NextSentenceModel(_Model):
    """The next-sentence head alone."""

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Encoder(self.config, self.execution)
        self.nsp_head = self._head(2, "nsp_head")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> jax.Array:
        """Logits, float32 [B, 2]; label 0: the second segment follows the first."""
        pooled = self.bert(
            input_ids, token_type_ids, attention_mask, position_ids, deterministic=deterministic
        ).pooled
        return self.nsp_head(pooled).astype(jnp.float32)


class ClassificationModel(_Model):
    """Scores of the labels of a text or a pair; with one label, a regression."""

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Encoder(self.config, self.execution)
        self.dropout = self._classifier_dropout()
        self.classifier = self._head(self.config.num_labels, "classifier")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        packed_rows: PackedRows | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Logits, float32 [B, C]."""
        pooled = self.bert(
            input_ids,
            token_type_ids,
            attention_mask,
            position_ids,
            packed_rows=packed_rows,
            deterministic=deterministic,
        ).pooled
        pooled = self.dropout(pooled, deterministic=deterministic)
        return self.classifier(pooled).astype(jnp.float32)


class TaggingModel(_Model):
    """Scores of the labels of every token.

    With `use_crf` the parameters of `models.crf.CRFParams` are here, too; it is up to whoever reads the
    logits to use them.
    """

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Encoder(self.config, self.execution, add_pooling_layer=False)
        self.dropout = self._classifier_dropout()
        self.classifier = self._head(self.config.num_labels, "classifier")
        if self.config.use_crf:
            labels = self.config.num_labels
            shapes = ((labels, labels), (labels,), (labels,))
            for name, shape in zip(CRF_PARAMETERS, shapes, strict=True):
                self.param(name, nn.initializers.normal(self.config.initializer_range), shape)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        packed_rows: PackedRows | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """Logits, float32 [B, T, C]."""
        hidden = self.bert(
            input_ids,
            token_type_ids,
            attention_mask,
            position_ids,
            packed_rows=packed_rows,
            deterministic=deterministic,
        ).last_hidden_state
        hidden = self.dropout(hidden, deterministic=deterministic)
        return self.classifier(hidden).astype(jnp.float32)


class QuestionAnsweringModel(_Model):
    """Where in the second segment the answer begins and ends."""

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Encoder(self.config, self.execution, add_pooling_layer=False)
        self.qa_outputs = self._head(2, "qa_outputs")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        packed_rows: PackedRows | None = None,
        deterministic: bool = True,
    ) -> QuestionAnsweringOutput:
        """As `Encoder`; the span head has no dropout."""
        hidden = self.bert(
            input_ids,
            token_type_ids,
            attention_mask,
            position_ids,
            packed_rows=packed_rows,
            deterministic=deterministic,
        ).last_hidden_state
        logits = self.qa_outputs(hidden).astype(jnp.float32)  # BT2
        return QuestionAnsweringOutput(logits[..., 0], logits[..., 1])


class MultipleChoiceModel(_Model):
    """One score for each choice; every choice is a sequence of its own."""

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Encoder(self.config, self.execution)
        self.dropout = self._classifier_dropout()
        self.classifier = self._head(1, "classifier")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        packed_rows: PackedRows | None = None,
        deterministic: bool = True,
    ) -> jax.Array:
        """int32 [B, C, T], four times → logits of the C choices, float32 [B, C]."""

        def rows(array: jax.Array | None) -> jax.Array | None:
            return None if array is None else array.reshape(-1, array.shape[-1])

        pooled = self.bert(
            input_ids.reshape(-1, input_ids.shape[-1]),
            rows(token_type_ids),
            rows(attention_mask),
            rows(position_ids),
            packed_rows=packed_rows,
            deterministic=deterministic,
        ).pooled
        pooled = self.dropout(pooled, deterministic=deterministic)
        return self.classifier(pooled).astype(jnp.float32).reshape(input_ids.shape[:-1])


MODULES: dict[Head, type[nn.Module]] = {
    Head.ENCODER: Encoder,
    Head.PRETRAINING: PreTrainingModel,
    Head.MASKED_LM: MaskedLMModel,
    Head.NEXT_SENTENCE: NextSentenceModel,
    Head.CLASSIFICATION: ClassificationModel,
    Head.TAGGING: TaggingModel,
    Head.QUESTION_ANSWERING: QuestionAnsweringModel,
    Head.MULTIPLE_CHOICE: MultipleChoiceModel,
}
