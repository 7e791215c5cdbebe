"""Heads that several models share: that of the masked language model, and two dense layers."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import scores
from bert_jax.models.layers import HIDDEN_AXES, activation, dense, layer_norm, word_rows_init


class MaskedLanguageModelHead(nn.Module):
    """Logits of all words at some positions: dense → activation → LayerNorm → word embeddings.

    The decoder is the table of word embeddings, with another bias; if `tie_word_embeddings` is
    false it is a separate table. With `mlm_extended_decoder` the table has additional columns.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, hidden: jax.Array, word_embeddings: jax.Array) -> jax.Array:
        """[B, P, D] and the table [V, E] → float32 logits [B, P, V], see `word_logits`."""
        config = self.config
        rows, narrow = word_embeddings.shape
        width = config.hidden_size if config.mlm_extended_decoder else narrow
        hidden = dense(config, self.execution, width, "dense")(hidden)
        hidden = activation(config.mlm_act or config.hidden_act)(hidden)
        hidden = layer_norm(config, self.execution, "layer_norm")(hidden)
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        table = word_embeddings
        if not config.tie_word_embeddings:
            table = self.param("decoder", word_rows_init(config), word_embeddings.shape)
        if width > narrow:
            shape = (rows, width - narrow)
            extension = self.param("decoder_extension", word_rows_init(config), shape)
            table = jnp.concatenate([table, extension], axis=1)
        bias = self.param("bias", nn.initializers.zeros, (rows,))
        return word_logits(config, hidden, table, bias)


def word_logits(
    config: EncoderConfig, vectors: jax.Array, table: jax.Array, bias: jax.Array
) -> jax.Array:
    """[B, P, E], a table [V, E] and float32 [V] → float32 logits [B, P, V].

    If the table has padding, so have the logits: the lowest finite number, which is never the
    maximum and becomes 0 in a softmax.
    """
    if len(table) > config.vocab_size:
        bias = jnp.where(jnp.arange(len(table)) < config.vocab_size, bias, MASK_VALUE)
    return nn.with_logical_constraint(scores(vectors, table) + bias, ("batch", "length", "vocab"))


class TransformedOutput(nn.Module):
    """Dense, activation, and a dense map to some outputs, with dropout before either.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
        outputs: number of outputs.
        act: activation.
        input_rate: rate of the dropout before the first map.
        rate: rate of the dropout before the second map.
    """

    config: EncoderConfig
    execution: Execution
    outputs: int
    act: str
    input_rate: float = 0.0
    rate: float = 0.0

    @nn.compact
    def __call__(self, vectors: jax.Array, deterministic: bool) -> jax.Array:
        """[..., D] → float32 [..., outputs]."""
        vectors = Dropout(self.input_rate)(vectors, deterministic=deterministic)
        vectors = dense(self.config, self.execution, self.config.hidden_size, "dense")(vectors)
        vectors = activation(self.act)(vectors)
        vectors = Dropout(self.rate)(vectors, deterministic=deterministic)
        outputs = dense(self.config, self.execution, self.outputs, "out_proj")(vectors)
        return outputs.astype(jnp.float32)
