"""Token ids to vectors (paper, figure 2)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.layers import kernel_init, layer_norm


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, then LayerNorm, then dropout."""

    config: BertConfig
    execution: Execution

    def setup(self) -> None:
        """Declares the three tables."""
        self.word_embeddings = self._table(self.config.vocab_size)
        self.position_embeddings = self._table(self.config.max_position_embeddings)
        self.token_type_embeddings = self._table(self.config.type_vocab_size)
        self.norm = layer_norm(self.config, self.execution, name="layer_norm")
        self.dropout = nn.Dropout(self.config.hidden_dropout_prob)

    def _table(self, rows: int) -> nn.Embed:
        return nn.Embed(
            rows,
            self.config.hidden_size,
            dtype=jnp.dtype(self.execution.dtype),
            embedding_init=kernel_init(self.config),
        )

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
            self.word_embeddings(input_ids)
            + self.position_embeddings(position_ids)
            + self.token_type_embeddings(token_type_ids)
        )
        return self.dropout(self.norm(hidden), deterministic=deterministic)
