"""The head of the masked language model (BERT paper, section 3.1)."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.errors import OptionError
from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.comparison import Comparison, DrawnBatch, Labels, cross_entropy_of_logits
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import EncoderOutput
from bert_jax.models.encoder_with_head import EncoderWithHead
from bert_jax.models.execution import Execution
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.kernels.matmul import scores
from bert_jax.models.layers import HIDDEN_AXES, dense, layer_norm, vocabulary_table_init


@dataclasses.dataclass(frozen=True)
class MaskedLMOptions(HeadOptions):
    """The head of the masked language model.

    Attributes:
        act: activation; None: `hidden_act`.
        extended_decoder: whether the decoder has width D, the word embeddings and D - E more
            columns (MobileBERT); otherwise it has their width E.
    """

    act: str | None = None
    extended_decoder: bool = False

    def check(self, config: EncoderConfig) -> None:
        """Checks that an extended decoder is not narrower than the word embeddings."""
        if self.extended_decoder and config.embedding_width > config.hidden_size:
            rule = f"it must be at most {{model.hidden_size}}, {config.hidden_size}"
            raise OptionError("model.embedding_size", config.embedding_size, rule)


class MaskedLanguageModelHead(nn.Module):
    """Logits of all words at some positions: dense → activation → LayerNorm → word embeddings.

    The decoder is the table of word embeddings with a bias; if `tie_word_embeddings` is false it is
    a separate table. With `extended_decoder` the table has additional columns.
    """

    config: EncoderConfig
    execution: Execution

    def __call__(self, hidden: jax.Array, word_embeddings: jax.Array) -> jax.Array:
        """[B, P, D] and the table [V, E] → float32 logits [B, P, V], see `vocabulary_logits`."""
        return vocabulary_logits(*self.factors(hidden, word_embeddings))

    @nn.compact
    def factors(
        self, hidden: jax.Array, word_embeddings: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The arguments of `vocabulary_logits`: vectors [B, P, I], table [V, I] and bias [V].

        With padding, see `padded_bias`.
        """
        config = self.config
        options = config.head_options(MaskedLMOptions)
        rows, narrow = word_embeddings.shape
        width = config.hidden_size if options.extended_decoder else narrow
        has_bias = config.has_biases or config.head_act is None
        hidden = dense(config, self.execution, width, "dense", use_bias=has_bias)(hidden)
        hidden = ACTIVATIONS[options.act or config.head_act or config.hidden_act](hidden)
        hidden = layer_norm(config, self.execution, "layer_norm")(hidden)
        hidden = nn.with_logical_constraint(hidden, HIDDEN_AXES)
        table = word_embeddings
        if not config.tie_word_embeddings:
            table = self.param("decoder", vocabulary_table_init(config), word_embeddings.shape)
        if width > narrow:
            shape = (rows, width - narrow)
            extension = self.param("decoder_extension", vocabulary_table_init(config), shape)
            table = jnp.concatenate([table, extension], axis=1)
        bias = self.param("bias", nn.initializers.zeros, (rows,))
        return hidden, table, padded_bias(config, bias)


def padded_bias(config: EncoderConfig, bias: jax.Array) -> jax.Array:
    """The bias of the words, float32 [V], with the lowest finite number for padding of the table.

    So are the logits of padding: they are never the maximum, and become 0 in a softmax.
    """
    if len(bias) > config.vocab_size:
        bias = jnp.where(jnp.arange(len(bias)) < config.vocab_size, bias, MASK_VALUE)
    return bias


def vocabulary_logits(vectors: jax.Array, table: jax.Array, bias: jax.Array) -> jax.Array:
    """[B, P, I], a table [V, I] and float32 [V] → float32 logits [B, P, V]."""
    return nn.with_logical_constraint(scores(vectors, table) + bias, ("batch", "length", "vocab"))


class MaskedLMModel(EncoderWithHead):
    """The encoder with the masked-language-model head."""

    def setup(self) -> None:
        super().setup()
        self.mlm_head = MaskedLanguageModelHead(self.config, self.execution)

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Word scores, float32 [B, P, V] at `masked_lm_positions`, or [B, T, V]."""
        return self.mlm_head(encoded.last_hidden_state, self.encoder.word_embeddings())


def _labels(draw: DrawnBatch) -> Labels:
    return {"labels": draw.mask_words()}


HEAD = Head(
    MaskedLMModel,
    fills_masks=True,
    makes_vectors=True,
    axes=(
        ("mlm_head/bias", ("vocab",)),
        ("mlm_head/decoder(_extension)?", ("vocab", "embed")),
        *dense_axes("mlm_head/dense"),
    ),
    decay=(("mlm_head/decoder(_extension)?", True),),
    shown_by=(("mlm_head/dense/kernel",),),
    options=MaskedLMOptions,
    comparison=Comparison(
        ("logits",), ("masked_lm",), _labels, ("logits",), cross_entropy_of_logits
    ),
)
