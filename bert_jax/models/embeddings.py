"""The embeddings of tokens: word, position and token type (paper, figure 2)."""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.layers import dense, kernel_init, norm, vocabulary_table_init
from bert_jax.models.packed_rows import EncoderInputs


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, then LayerNorm, then dropout (figure 2).

    The token type is the segment of the paper: sentence A or B. All tables have the width E; with
    `trigram_input` only the words have, and positions, token types and the sum have the width D.
    Parts that a config lacks are left out.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
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
        if config.position_rows is not None:
            self.position_embeddings = self._table(config.position_rows, width, init)
        if config.type_vocab_size:
            self.token_type_embeddings = self._table(config.type_vocab_size, width, init)
        if config.trigram_input:
            self.transformation = dense(config, self.execution, width, name="transformation")
        if config.project_before_norm and config.has_embedding_projection:
            size = config.hidden_size
            self.projection = dense(config, self.execution, size, "projection", use_bias=False)
        if config.embedding_norm:
            self.norm = norm(self.config, self.execution, name="layer_norm")
        rate = config.embedding_dropout
        self.dropout = Dropout(config.hidden_dropout_prob if rate is None else rate)

    def _table(self, rows: int, width: int, init: Callable[..., jax.Array]) -> nn.Embed:
        # Looked up and summed in float32 for any dtype of the activations: the gradient of a row is
        # a sum over all occurrences of its word, for which bfloat16 has too few digits.
        return nn.Embed(rows, width, embedding_init=init)

    def __call__(
        self,
        inputs: EncoderInputs,
        indices: jax.Array,
        deterministic: bool,
        word_embeddings: jax.Array | None = None,
    ) -> jax.Array:
        """Vectors [B, T, E] of the tokens in the rows that the layers compute.

        With `trigram_input` or `project_before_norm` their width is D.

        Args:
            inputs: the tokens.
            indices: int32 [B, T], index of each token in the batch, for the dropout masks.
            deterministic: False for training, with dropout.
            word_embeddings: the table of another model; None: the own one, which is no
                parameter if it is never used.
        """
        config, packed = self.config, inputs.packed
        words = self.words() if word_embeddings is None else word_embeddings
        if config.trigram_input:
            word_ids = packed(trigrams(inputs.input_ids, inputs.segment_ids))
            parts = jnp.take(words, jnp.maximum(word_ids, 0), axis=0)  # BT3E
            parts = jnp.where(word_ids[..., None] < 0, 0, parts)
            joined = parts.reshape(*word_ids.shape[:2], -1)
            hidden = self.transformation(joined).astype(jnp.float32)
        else:
            hidden = jnp.take(words, packed(inputs.input_ids), axis=0)
        if config.scale_embedding:
            hidden *= math.sqrt(config.hidden_size)
        position_ids = packed(self._position_rows(inputs))
        if config.position_rows is not None:
            hidden += jnp.take(_gathered(self.position_embeddings, None), position_ids, axis=0)
        elif config.position_kind == "sinusoidal":
            table = sinusoids(config.max_position_embeddings, config.embedding_width)
            hidden += jnp.take(jnp.asarray(table), position_ids, axis=0)
        if config.type_vocab_size:
            types = inputs.token_type_ids
            types = packed(jnp.zeros_like(inputs.input_ids) if types is None else types)
            hidden += jnp.take(_gathered(self.token_type_embeddings, None), types, axis=0)
        if config.project_before_norm and config.has_embedding_projection:
            hidden = self.projection(hidden)
        hidden = self.norm(hidden) if config.embedding_norm else hidden
        hidden = hidden.astype(self.execution.dtype)
        return self.dropout(hidden, indices, deterministic=deterministic)

    def _position_rows(self, inputs: EncoderInputs) -> jax.Array:
        """The row of the position table of each token, int32 [B, T]."""
        config, ids, position_ids = self.config, inputs.input_ids, inputs.position_ids
        if not config.positions_after_padding:
            if position_ids is None:
                position_ids = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
            return position_ids + config.position_offset
        is_token = ids != config.pad_token_id
        if position_ids is None:
            position_ids = jnp.cumsum(is_token, axis=1, dtype=jnp.int32) - 1
        return jnp.where(is_token, position_ids + config.position_offset, config.pad_token_id)

    def words(self) -> jax.Array:
        """The table of word embeddings, float32 [V, E]."""
        return _gathered(self.word_embeddings, "vocab")


def sinusoids(length: int, width: int) -> np.ndarray:
    """Sines of angles p / 10000^(2i / D) for i < D / 2, then their cosines: float32 [length, D].

    The values of Vaswani et al. (section 3.5), which alternates the two; this order is of
    tensor2tensor, Marian and transformers.
    """
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width].astype(np.float32)


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


def checked_range(name: str, ids: jax.Array, rows: int) -> np.ndarray | None:
    """The values of ids; None if there are none, or none are known yet.

    Args:
        name: the ids, for the message.
        ids: int32.
        rows: number of ids that there are.

    Raises:
        ValueError: a look-up would give NaN, or another row.
    """
    if isinstance(ids, jax.core.Tracer) or not ids.size:
        return None
    if isinstance(ids, jax.Array) and not ids.is_fully_addressable:
        return None
    # By NumPy: where a function is traced, JAX does not compute with constants, either.
    values = np.asarray(ids)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= rows:
        raise ValueError(
            f"{name} are from {low} to {high}, but the vocabulary is from 0 to "
            f"{rows - 1}; give ids of the model's tokenizer"
        )
    return values


def _gathered(table: nn.Embed, rows: str | None) -> jax.Array:
    """A table gathered so that each device has all of D.

    Otherwise the compiler looks up each device's part of D, for the tokens of all devices.
    """
    return nn.with_logical_constraint(table.embedding, (rows, None))
