"""The encoder with each of its heads (BERT paper, figures 1 and 4).

All models take what `Encoder` takes first and pass what they do not know on to it. Their parameters
are those of the encoder, in the scope "bert", and those of the head beside it.
"""

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.crf import PARAMETERS as CRF_PARAMETERS
from bert_jax.models.dropout import Dropout
from bert_jax.models.encoder import Encoder
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

    The parts' names in the parameter tree are those of their attributes. They seed initialisation
    and dropout, and runs are saved under them, so they stay, "bert" for the encoder of every family
    among them.
    """

    config: EncoderConfig
    execution: Execution = Execution()

    has_pooler: ClassVar[bool] = True

    def setup(self) -> None:
        self.bert = Encoder(self.config, self.execution, add_pooling_layer=self.has_pooler)

    def _dense(self, features: int, name: str) -> Dense:
        return dense(self.config, self.execution, features, name)

    def _word_scores(self, hidden: jax.Array, positions: jax.Array | None) -> jax.Array:
        """[B, T, D] and int32 [B, P] or None → float32 [B, P, V] or [B, T, V]."""
        if positions is not None:
            # The head over the vocabulary is a fifth of the work if all T positions pass it.
            hidden = gather_positions(hidden, positions)  # BPD
        return self.mlm_head(hidden, self.bert.word_embeddings())


class PreTrainingModel(_Model):
    """The masked-language-model head and the next-sentence head."""

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)
        self.nsp_head = self._dense(2, "nsp_head")

    def __call__(
        self,
        *inputs: Any,
        masked_lm_positions: jax.Array | None = None,
        next_sentence_positions: jax.Array | None = None,
        **options: Any,
    ) -> PreTrainingOutput:
        """As `Encoder`.

        Args:
            *inputs: of the encoder.
            masked_lm_positions: int32 [B, P], limits the word scores to P positions.
            next_sentence_positions: int32 [B, K], those of the [CLS] of K texts of a row.
            **options: of the encoder.
        """
        output = self.bert(*inputs, cls_positions=next_sentence_positions, **options)
        return PreTrainingOutput(
            prediction_logits=self._word_scores(output.last_hidden_state, masked_lm_positions),
            seq_relationship_logits=self.nsp_head(output.pooled).astype(jnp.float32),
        )


class MaskedLMModel(_Model):
    """The masked-language-model head alone."""

    has_pooler: ClassVar[bool] = False

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def __call__(
        self,
        *inputs: Any,
        masked_lm_positions: jax.Array | None = None,
        **options: Any,
    ) -> jax.Array:
        """Word scores, float32 [B, P, V] at `masked_lm_positions` int32 [B, P], or [B, T, V]."""
        hidden = self.bert(*inputs, **options).last_hidden_state
        return self._word_scores(hidden, masked_lm_positions)


class NextSentenceModel(_Model):
    """The next-sentence head alone."""

    def setup(self) -> None:
        super().setup()
        self.nsp_head = self._dense(2, "nsp_head")

    def __call__(self, *inputs: Any, **options: Any) -> jax.Array:
        """Logits, float32 [B, 2]; label 0: the second segment follows the first."""
        return self.nsp_head(self.bert(*inputs, **options).pooled).astype(jnp.float32)


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

    def __call__(self, *inputs: Any, deterministic: bool = True, **options: Any) -> jax.Array:
        """Logits, float32 [B, C]."""
        output = self.bert(*inputs, deterministic=deterministic, **options)
        return self._classify(output.pooled, deterministic)


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

    def __call__(self, *inputs: Any, deterministic: bool = True, **options: Any) -> jax.Array:
        """Logits, float32 [B, T, C]."""
        output = self.bert(*inputs, deterministic=deterministic, **options)
        return self._classify(output.last_hidden_state, deterministic)


class QuestionAnsweringModel(_Model):
    """Where in the second segment the answer begins and ends; the head has no dropout."""

    has_pooler: ClassVar[bool] = False

    def setup(self) -> None:
        super().setup()
        self.qa_outputs = self._dense(2, "qa_outputs")

    def __call__(self, *inputs: Any, **options: Any) -> QuestionAnsweringOutput:
        """The logits of each token."""
        hidden = self.bert(*inputs, **options).last_hidden_state
        logits = self.qa_outputs(hidden).astype(jnp.float32)  # BT2
        return QuestionAnsweringOutput(logits[..., 0], logits[..., 1])


class MultipleChoiceModel(_Classifier):
    """One score for each choice; every choice is a row of its own for the encoder."""

    def _num_outputs(self) -> int:
        return 1

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
        **options: Any,
    ) -> jax.Array:
        """int32 [B, C, T], four times → logits of the C choices, float32 [B, C]."""
        inputs = (input_ids, token_type_ids, attention_mask, position_ids)
        rows: Any = (None if one is None else one.reshape(-1, one.shape[-1]) for one in inputs)
        output = self.bert(*rows, deterministic=deterministic, **options)
        return self._classify(output.pooled, deterministic).reshape(input_ids.shape[:-1])


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
