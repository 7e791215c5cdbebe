"""Token ids to vectors (paper, figure 2)."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.layers import kernel_init, layer_norm, word_rows_init


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, then LayerNorm, then dropout.

    The token type is what the paper calls the segment: sentence A or B.
    """

    config: EncoderConfig
    execution: Execution

    def setup(self) -> None:
        config = self.config
        rows = self.execution.padded_vocab_size(config.vocab_size)
        self.word_embeddings = self._table(rows, word_rows_init(config))
        self.position_embeddings = self._table(config.max_position_embeddings, kernel_init(config))
        self.token_type_embeddings = self._table(config.type_vocab_size, kernel_init(config))
        self.norm = layer_norm(self.config, self.execution, name="layer_norm")
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def _table(self, rows: int, init: Callable[..., jax.Array]) -> nn.Embed:
        # Read, and summed, in float32 whatever the dtype of the activations: the gradient of a
        # row is a sum over all occurrences of its word, for which bfloat16 has too few digits.
        return nn.Embed(rows, self.config.hidden_size, embedding_init=init)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        position_ids: jax.Array,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """int32 [B, T] three times → [B, T, D]."""
        hidden = (
            jnp.take(self.words(), input_ids, axis=0)
            + jnp.take(_gathered(self.position_embeddings, None), position_ids, axis=0)
            + jnp.take(_gathered(self.token_type_embeddings, None), token_type_ids, axis=0)
        )
        return self.dropout(self.norm(hidden), deterministic=deterministic)

    def words(self) -> jax.Array:
        """The table of word embeddings, float32 [V, D]."""
        return _gathered(self.word_embeddings, "vocab")


def _gathered(table: nn.Embed, rows: str | None) -> jax.Array:
    """A table with all of D on each device.

    Left to itself the compiler looks words up in its part of D, for the tokens of all devices.
    """
    return nn.with_logical_constraint(table.embedding, (rows, None))
