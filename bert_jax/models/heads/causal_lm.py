"""The head of a causal language model: the next token at each one (GPT)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import OptionError
from bert_jax.models.comparison import (
    IGNORED_LABEL,
    Arrays,
    Comparison,
    DrawnBatch,
    Labels,
    cross_entropy,
)
from bert_jax.models.config import EncoderConfig
from bert_jax.models.decoding import DecoderCache
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead
from bert_jax.models.execution import Execution
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.heads.masked_lm import padded_bias, vocabulary_logits
from bert_jax.models.layers import dense, vocabulary_table_init
from bert_jax.models.packed_rows import EncoderInputs


class LanguageModelHead(nn.Module):
    """Logits of all tokens from the last hidden states: the table of word embeddings.

    If `tie_word_embeddings` is false it is a separate table. Hidden states wider or narrower than
    the word embeddings become as wide by a linear layer before these.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
        has_bias: whether each token has a bias.
        scale: factor of the hidden states.
    """

    config: EncoderConfig
    execution: Execution
    has_bias: bool = False
    scale: float = 1.0

    @nn.compact
    def __call__(self, hidden: jax.Array, word_embeddings: jax.Array) -> jax.Array:
        """[B, T, D] and the table [V, E] → float32 logits [B, T, V]."""
        table, width = word_embeddings, hidden.shape[-1]
        if not self.config.tie_word_embeddings:
            shape = (len(table), width)
            table = self.param("decoder", vocabulary_table_init(self.config), shape)
        elif width != (narrow := table.shape[-1]):
            hidden = dense(self.config, self.execution, narrow, "projection")(hidden)
        rows = len(table)
        bias = self.param("bias", nn.initializers.zeros, (rows,)) if self.has_bias else None
        bias = padded_bias(self.config, jnp.zeros(rows) if bias is None else bias)
        return vocabulary_logits(hidden * self.scale, table, bias)


class CausalLanguageModel(EncoderWithHead):
    """A causal encoder with a head for the next token."""

    def setup(self) -> None:
        for field in ("bidirectional", "reverse_input"):
            if getattr(self.config, field):
                rule = "a language model may not read the next token: leave it out, or set it False"
                raise OptionError(f"model.{field}", True, rule)
        super().setup()
        self.lm_head = LanguageModelHead(self.config, self.execution)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Scores of the token after each one, float32 [B, T, V]."""
        return self.lm_head(encoded.last_hidden_state, self.encoder.word_embeddings())

    def decode(
        self, inputs: EncoderInputs, cache: DecoderCache
    ) -> tuple[jax.Array, DecoderCache | None]:
        """The scores of the token after the last of T that follow those of a cache.

        Args:
            inputs: the T tokens, with their positions.
            cache: the earlier tokens, see `DecoderCache.empty`.

        Returns:
            float32 [B, V], and the cache with the T tokens.
        """
        encoded = self.encoder.encode(inputs, True, cache=cache)
        last = encoded._replace(last_hidden_state=encoded.last_hidden_state[:, -1:])
        return self._head(last, True)[:, 0], encoded.cache


def _labels(draw: DrawnBatch) -> Labels:
    """The tokens themselves, which transformers shifts."""
    return {"labels": np.where(draw.mask == 1, draw.ids, IGNORED_LABEL).astype(np.int32)}


def _loss(logits: Arrays, labels: Arrays, _: str) -> list[jax.Array]:
    return [cross_entropy(logits["logits"][:, :-1], labels["labels"][:, 1:])]


HEAD = Head(
    CausalLanguageModel,
    generates=True,
    axes=(
        ("lm_head/decoder", ("vocab", "embed")),
        ("lm_head/bias", ("vocab",)),
        *dense_axes("lm_head/projection"),
    ),
    decay=(("lm_head/decoder", True),),
    shown_by=(("lm_head/decoder",),),
    comparison=Comparison(("logits",), ("causal_lm",), _labels, ("logits",), _loss),
)
