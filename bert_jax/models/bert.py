"""BERT: the encoder of token ids, and the model that is pre-trained (paper, section 3)."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.encoder import HIDDEN_AXES, Encoder
from bert_jax.models.heads import MaskedLanguageModelHead, Pooler, gather_positions
from bert_jax.models.layers import dense


class Bert(nn.Module):
    """Embeddings, encoder and pooler."""

    config: BertConfig
    execution: Execution = Execution()

    def setup(self) -> None:
        """Declares the parts."""
        self.embeddings = Embeddings(self.config, self.execution)
        self.encoder = Encoder(self.config, self.execution)
        self.pooler = Pooler(self.config, self.execution)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array]:
        """Encodes tokens.

        Args:
            input_ids: int32 [B, T].
            token_type_ids: int32 [B, T], segment of each token; None for all 0.
            attention_mask: int32 or bool [B, T], 0 for padding; None for no padding.
            position_ids: int32 [B, T]; None for 0 … T-1.
            deterministic: False for training: dropout draws from the RNG stream "dropout".

        Returns:
            Hidden states [B, T, D] and pooled output [B, D], in the dtype of the execution.
        """
        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        if attention_mask is None:
            attention_mask = jnp.ones_like(input_ids)
        if position_ids is None:
            position_ids = jnp.broadcast_to(jnp.arange(input_ids.shape[1]), input_ids.shape)
        hidden = self.embeddings(
            input_ids, token_type_ids, position_ids, deterministic=deterministic
        )
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        hidden = self.encoder(hidden, attention_mask.astype(bool), deterministic=deterministic)
        return hidden, self.pooler(hidden)

    def word_embeddings(self) -> jax.Array:
        """The table of word embeddings, float32 [V, D]."""
        return self.embeddings.word_embeddings.embedding


def init_params(module: nn.Module, key: jax.Array) -> Any:
    """New parameters of any of the models, float32."""
    return module.init(key, jnp.zeros((1, 1), jnp.int32))["params"]


def abstract_params(module: nn.Module) -> Any:
    """Shapes and dtypes of the parameters, without computing them."""
    return jax.eval_shape(lambda: init_params(module, jax.random.key(0)))


class PreTrainingOutput(NamedTuple):
    """Logits of the two pre-training heads.

    Attributes:
        prediction_logits: float32 [B, P, V], words at the asked positions ([B, T, V] if none).
        seq_relationship_logits: float32 [B, 2]; label 0: the second segment follows the first.
    """

    prediction_logits: jax.Array
    seq_relationship_logits: jax.Array


class BertForPreTraining(nn.Module):
    """BERT with the masked-language-model head and the next-sentence head."""

    config: BertConfig
    execution: Execution = Execution()

    def setup(self) -> None:
        """Declares the parts."""
        self.bert = Bert(self.config, self.execution)
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)
        self.nsp_head = dense(self.config, self.execution, 2, name="nsp_head")

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        attention_mask: jax.Array | None = None,
        position_ids: jax.Array | None = None,
        masked_lm_positions: jax.Array | None = None,
        *,
        deterministic: bool = True,
    ) -> PreTrainingOutput:
        """As `Bert`; `masked_lm_positions` int32 [B, P] limits the word scores to P positions."""
        hidden, pooled = self.bert(
            input_ids, token_type_ids, attention_mask, position_ids, deterministic=deterministic
        )
        if masked_lm_positions is not None:
            # The head over the vocabulary is a fifth of the work if all T positions pass it.
            hidden = gather_positions(hidden, masked_lm_positions)  # BPD
        return PreTrainingOutput(
            prediction_logits=self.mlm_head(hidden, self.bert.word_embeddings()),
            seq_relationship_logits=self.nsp_head(pooled).astype(jnp.float32),
        )
