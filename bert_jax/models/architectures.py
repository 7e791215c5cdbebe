"""The encoder with each of its heads (BERT paper, figures 1 and 4).

All models are called alike, see `_Model.__call__`. Their parameters are those of the encoder, in
the scope `ENCODER_SCOPE`, and those of the head beside it.
"""

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig, Head
from bert_jax.models.crf import PARAMETERS as CRF_PARAMETERS
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder, EncoderOutput
from bert_jax.models.execution import Execution
from bert_jax.models.kernels import MASK_VALUE
from bert_jax.models.kernels.matmul import scores
from bert_jax.models.layers import (
    HIDDEN_AXES,
    Dense,
    activation,
    dense,
    gather_positions,
    layer_norm,
    word_rows_init,
)
from bert_jax.models.packed_rows import PackedRows


class PreTrainingOutput(NamedTuple):
    """Logits of the two pre-training heads.

    Attributes:
        prediction_logits: float32 [B, P, V], words at the requested positions ([B, T, V] if none).
        seq_relationship_logits: float32 [B, 2], or [B, K, 2] for K texts of a row; label 0: the
            second segment follows the first.
    """

    prediction_logits: jax.Array
    seq_relationship_logits: jax.Array


class QuestionAnsweringOutput(NamedTuple):
    """Scores of each token as the first and as the last of the answer, float32 [B, T]."""

    start_logits: jax.Array
    end_logits: jax.Array


class MaskedLanguageModelHead(nn.Module):
    """Scores of all words at some positions: dense → activation → LayerNorm → word embeddings.

    The decoder is the table of word embeddings, with another bias; with `tie_word_embeddings`
    false it is a separate table.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, word_embeddings: jax.Array) -> jax.Array:
        """[B, P, D] and the table [V, D] → float32 logits [B, P, V].

        Where the table has padding, so have the logits: the lowest finite number, which wins no
        comparison and is 0 after a softmax.
        """
        hidden = dense(self.config, self.execution, self.config.hidden_size, "dense")(hidden)
        hidden = activation(self.config.hidden_act)(hidden)
        hidden = layer_norm(self.config, self.execution, "layer_norm")(hidden)
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        table = word_embeddings
        if not self.config.tie_word_embeddings:
            table = self.param("decoder", word_rows_init(self.config), word_embeddings.shape)
        rows = len(word_embeddings)
        bias = self.param("bias", nn.initializers.zeros, (rows,))
        if rows > self.config.vocab_size:
            is_word = jnp.arange(rows) < self.config.vocab_size
            bias = jnp.where(is_word, bias, MASK_VALUE)
        logits = scores(hidden, table) + bias
        return nn.with_logical_constraint(logits, ("batch", "length", "vocab"))


class _Model(nn.Module):
    """An encoder; each model adds its head.

    The names of the parts in the parameter tree seed initialisation and dropout, and runs are saved
    under them; so they stay.
    """

    config: EncoderConfig
    execution: Execution = Execution()

    has_pooler: ClassVar[bool] = True

    def setup(self) -> None:
        self.encoder = Encoder(
            self.config, self.execution, add_pooling_layer=self.has_pooler, name=ENCODER_SCOPE
        )

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
    ) -> Any:
        """Encodes tokens and applies the head; each model's `_head` documents what it returns.

        Args:
            input_ids: int32 [B, T]; for multiple choice [B, C, T], as the next three.
            token_type_ids: first or second sentence, see `Encoder`, as for the next four.
            attention_mask: 0 for padding.
            position_ids: None for 0 … T-1.
            segment_ids: which text of its row a token belongs to.
            packed_rows: has the layers compute the rows in packed rows.
            masked_lm_positions: int32 [B, P], limits scores of tokens to P positions; None for all.
            next_sentence_positions: int32 [B, K], the positions of the [CLS] of K texts of a row;
                None for 0 alone.
            deterministic: False for training: dropout draws from the RNG stream "dropout".
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
        )
        if masked_lm_positions is not None:
            # The head over the vocabulary is a fifth of the work if all T positions pass it.
            chosen = gather_positions(encoded.last_hidden_state, masked_lm_positions)  # BPD
            encoded = encoded._replace(last_hidden_state=chosen)
        outputs = self._head(encoded, deterministic)
        leading = input_ids.shape[:-1]
        return jax.tree.map(lambda array: array.reshape(*leading, *array.shape[1:]), outputs)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> Any:
        raise NotImplementedError

    def _dense(self, features: int, name: str) -> Dense:
        return dense(self.config, self.execution, features, name)


class MaskedLMModel(_Model):
    """The masked-language-model head alone."""

    has_pooler: ClassVar[bool] = False

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Word scores, float32 [B, P, V] at `masked_lm_positions`, or [B, T, V]."""
        return self.mlm_head(encoded.last_hidden_state, self.encoder.word_embeddings())


class NextSentenceModel(_Model):
    """The next-sentence head alone."""

    def setup(self) -> None:
        super().setup()
        self.nsp_head = self._dense(2, "nsp_head")

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, 2]; label 0: the second segment follows the first."""
        return self.nsp_head(encoded.pooled).astype(jnp.float32)


class PreTrainingModel(_Model):
    """The masked-language-model head and the next-sentence head."""

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)
        self.nsp_head = self._dense(2, "nsp_head")

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> PreTrainingOutput:
        words = self.mlm_head(encoded.last_hidden_state, self.encoder.word_embeddings())
        return PreTrainingOutput(words, self.nsp_head(encoded.pooled).astype(jnp.float32))


class _Classifier(_Model):
    """Dropout and a dense layer on vectors of the encoder."""

    def setup(self) -> None:
        super().setup()
        rate = self.config.classifier_dropout
        self.dropout = Dropout(self.config.hidden_dropout_prob if rate is None else rate)
        self.classifier = self._dense(self._num_outputs(), "classifier")

    def _num_outputs(self) -> int:
        return self.config.num_labels

    def _classify(self, vectors: jax.Array, deterministic: bool) -> jax.Array:
        """[..., D] → float32 [..., C]."""
        vectors = self.dropout(vectors, deterministic=deterministic)
        return self.classifier(vectors).astype(jnp.float32)


class ClassificationModel(_Classifier):
    """Scores of the labels of a text or a pair; with one label, a regression."""

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, C]."""
        return self._classify(encoded.pooled, deterministic)


class TaggingModel(_Classifier):
    """Scores of the labels of every token.

    With `use_crf` it also has the parameters of `models.crf.CRFParams`; loss and decoding use them.
    """

    has_pooler: ClassVar[bool] = False

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
    """Where in the second segment the answer begins and ends; the head has no dropout."""

    has_pooler: ClassVar[bool] = False

    def setup(self) -> None:
        super().setup()
        self.qa_outputs = self._dense(2, "qa_outputs")

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> QuestionAnsweringOutput:
        logits = self.qa_outputs(encoded.last_hidden_state).astype(jnp.float32)  # BT2
        return QuestionAnsweringOutput(logits[..., 0], logits[..., 1])


class MultipleChoiceModel(_Classifier):
    """One score for each choice; the encoder sees every choice as a row."""

    def _num_outputs(self) -> int:
        return 1

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits of the C choices, float32 [B, C]."""
        return self._classify(encoded.pooled, deterministic).reshape(-1)


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
