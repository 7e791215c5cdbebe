"""What stands on the encoder: the pooler and the word scores (paper, section 3.1)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.layers import activation, dense, kernel_init, layer_norm


class Pooler(nn.Module):
    """The vector of a whole text: tanh of a dense map of its [CLS]."""

    config: BertConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, cls_positions: jax.Array | None = None) -> jax.Array:
        """[B, T, D] → [B, D]; with the positions of several [CLS], int32 [B, K], → [B, K, D]."""
        first = hidden[:, 0] if cls_positions is None else gather_positions(hidden, cls_positions)
        return jnp.tanh(dense(self.config, self.execution, self.config.hidden_size, "dense")(first))


class MaskedLanguageModelHead(nn.Module):
    """Scores of all words at some positions: dense → activation → LayerNorm → word embeddings.

    The decoder is the table of word embeddings itself, with a bias of its own; with
    `tie_word_embeddings` false it is a table of its own.
    """

    config: BertConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, word_embeddings: jax.Array) -> jax.Array:
        """[B, P, D] and the table [V, D] → float32 logits [B, P, V]."""
        hidden = dense(self.config, self.execution, self.config.hidden_size, "dense")(hidden)
        hidden = activation(self.config.hidden_act)(hidden)
        hidden = layer_norm(self.config, self.execution, "layer_norm")(hidden)
        table = word_embeddings
        if not self.config.tie_word_embeddings:
            table = self.param("decoder", kernel_init(self.config), word_embeddings.shape)
        bias = self.param("bias", nn.initializers.zeros, (self.config.vocab_size,))
        logits = jnp.einsum(
            "BPD,VD->BPV",
            hidden,
            table.astype(hidden.dtype),
            preferred_element_type=jnp.float32,
        )
        return logits + bias


def gather_positions(hidden: jax.Array, positions: jax.Array) -> jax.Array:
    """The hidden states at chosen positions: [B, T, D], int32 [B, P] → [B, P, D]."""
    return jnp.take_along_axis(hidden, positions[:, :, None], axis=1)
