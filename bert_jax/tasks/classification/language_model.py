"""The auxiliary loss of a causal classifier: the next tokens of its texts (GPT, section 3.2).

Radford et al., 2018, minimise the loss of the labels plus λ times the language model's, with λ 0.5.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from bert_jax.errors import OptionError
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import RequestedOutputs
from bert_jax.models.encoder_with_head import ModelInputs, apply_model
from bert_jax.models.heads.masked_lm import padded_bias, vocabulary_logits


class OutputsWithNextTokens(NamedTuple):
    """The outputs for a batch of texts.

    Attributes:
        logits: float32 [B, C], of the labels.
        next_tokens: float32 [B], mean cross-entropy of the tokens after the first of each text.
    """

    logits: jax.Array
    next_tokens: jax.Array


def with_next_tokens(
    module: nn.Module, params: Any, inputs: ModelInputs, dropout_key: jax.Array | None
) -> OutputsWithNextTokens:
    """The outputs of a causal classifier, whose tokens are scored with its word embeddings.

    For the arguments see `apply_model`.
    """
    logits, encoded = apply_model(module, params, inputs, dropout_key, RequestedOutputs())
    table = params[ENCODER_SCOPE]["embeddings"]["word_embeddings"]["embedding"]
    bias = padded_bias(module.config, jnp.zeros(len(table)))
    scores = vocabulary_logits(encoded.last_hidden_state[:, :-1], table, bias)  # BTV
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, inputs.input_ids[:, 1:])
    is_token = inputs.visible[:, 1:] != 0
    total = jnp.where(is_token, losses, 0).sum(axis=1)
    return OutputsWithNextTokens(logits, total / jnp.maximum(is_token.sum(axis=1), 1))


def check_language_model(config: EncoderConfig, weight: float) -> None:
    """Raises OptionError if a model cannot have the loss of the next tokens."""
    if weight and not config.is_causal:
        raise OptionError(
            "data.language_model_weight",
            weight,
            "set it to 0, or give a causal model, such as GPT, as {init_from}",
            problem="each token of the model sees the next one, so there is no loss of next tokens",
        )
    if weight and not (config.tie_word_embeddings and config.embedding_width == config.hidden_size):
        raise OptionError(
            "data.language_model_weight",
            weight,
            "set it to 0, or give a model with tie_word_embeddings, and embeddings as wide as the "
            "hidden states",
            problem="a classifier has no table of its own for the next tokens",
        )
