"""The word scores of the masked language model (paper, section 3.1)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.kernels import MASK_VALUE
from bert_jax.models.kernels.matmul import scores
from bert_jax.models.layers import HIDDEN_AXES, activation, dense, layer_norm, word_rows_init


class MaskedLanguageModelHead(nn.Module):
    """Scores of all words at some positions: dense → activation → LayerNorm → word embeddings.

    The decoder is the table of word embeddings itself, with a bias of its own; with
    `tie_word_embeddings` false it is a table of its own.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, word_embeddings: jax.Array) -> jax.Array:
        """[B, P, D] and the table [V, D] → float32 logits [B, P, V].

        Where the table has padding, so have the logits, and it is out of every comparison and
        every softmax: the lowest finite number.
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
