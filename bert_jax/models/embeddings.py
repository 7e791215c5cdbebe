"""The embeddings of tokens: word, position and token type (paper, figure 2)."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.layers import dense, kernel_init, norm, vocabulary_table_init


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, then LayerNorm, then dropout (figure 2).

    The token type is the segment of the paper: sentence A or B. All tables have the width E; with
    `trigram_input` only the words have, and positions, token types and the sum have the width D.
    """

    config: EncoderConfig
    execution: Execution

    def setup(self) -> None:
        config = self.config
        rows = self.execution.padded_vocab_size(config.vocab_size)
        narrow = config.embedding_width
        width = config.hidden_size if config.trigram_input else narrow
        self.word_embeddings = self._table(rows, narrow, vocabulary_table_init(config))
        init = kernel_init(config)
        self.position_embeddings = self._table(config.max_position_embeddings, width, init)
        if config.type_vocab_size:
            self.token_type_embeddings = self._table(config.type_vocab_size, width, init)
        if config.trigram_input:
            self.transformation = dense(config, self.execution, width, name="transformation")
        self.norm = norm(self.config, self.execution, name="layer_norm")
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def _table(self, rows: int, width: int, init: Callable[..., jax.Array]) -> nn.Embed:
        # Looked up and summed in float32 for any dtype of the activations: the gradient of a row is
        # a sum over all occurrences of its word, for which bfloat16 has too few digits.
        return nn.Embed(rows, width, embedding_init=init)

    def __call__(
        self,
        word_ids: jax.Array,
        token_type_ids: jax.Array,
        position_ids: jax.Array,
        indices: jax.Array,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """Four int32 [B, T] → [B, T, E]; with `trigram_input` → [B, T, D].

        Args:
            word_ids: the ids of the words; with `trigram_input` [B, T, 3], see `trigrams`.
            token_type_ids: first or second sentence.
            position_ids: rows of the position table.
            indices: index of each token in the batch, for the dropout masks.
            deterministic: False for training, with dropout.
        """
        if self.config.trigram_input:
            parts = jnp.take(self.words(), jnp.maximum(word_ids, 0), axis=0)  # BT3E
            parts = jnp.where(word_ids[..., None] < 0, 0, parts)
            joined = parts.reshape(*word_ids.shape[:2], -1)
            hidden = self.transformation(joined).astype(jnp.float32)
        else:
            hidden = jnp.take(self.words(), word_ids, axis=0)
        hidden += jnp.take(_gathered(self.position_embeddings, None), position_ids, axis=0)
        if self.config.type_vocab_size:
            hidden += jnp.take(_gathered(self.token_type_embeddings, None), token_type_ids, axis=0)
        return self.dropout(self.norm(hidden), indices, deterministic=deterministic)

    def words(self) -> jax.Array:
        """The table of word embeddings, float32 [V, E]."""
        return _gathered(self.word_embeddings, "vocab")


def trigrams(input_ids: jax.Array, segment_ids: jax.Array | None) -> jax.Array:
    """The ids after, at and before each token, -1 outside of its text: [B, T] → [B, T, 3]."""
    none = jnp.full_like(input_ids[:, :1], -1)
    after, before = input_ids[:, 1:], input_ids[:, :-1]
    if segment_ids is not None:
        is_same = segment_ids[:, 1:] == segment_ids[:, :-1]
        after, before = jnp.where(is_same, after, -1), jnp.where(is_same, before, -1)
    after = jnp.concatenate([after, none], axis=1)
    before = jnp.concatenate([none, before], axis=1)
    return jnp.stack([after, input_ids, before], axis=-1)


def _gathered(table: nn.Embed, rows: str | None) -> jax.Array:
    """A table gathered so that each device has all of D.

    Otherwise the compiler looks up each device's part of D, for the tokens of all devices.
    """
    return nn.with_logical_constraint(table.embedding, (rows, None))
