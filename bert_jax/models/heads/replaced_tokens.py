"""Replaced-token detection (ELECTRA: Clark et al., 2020, section 2).

A small masked language model, the generator, replaces masked tokens by words that it draws from its
own probabilities; the discriminator tells for each token whether it was replaced. Both are trained
at once, on one table of embeddings. Source: google-research/electra, run_pretraining.py.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.comparison import (
    IGNORED_LABEL,
    Arrays,
    Comparison,
    DrawnBatch,
    Labels,
    sigmoid_cross_entropy,
)
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import EncoderOutput, LayerStack, RequestedOutputs
from bert_jax.models.encoder_with_head import EncoderWithHead, ModelInputs, TransformedOutput
from bert_jax.models.head import Head, dense_axes
from bert_jax.models.heads.masked_lm import MaskedLanguageModelHead
from bert_jax.models.layers import gather_positions

# The width of an attention head of the generator.
_HEAD_WIDTH = 64


class ReplacedTokenOutput(NamedTuple):
    """The output of generator and discriminator.

    Attributes:
        prediction_logits: float32 [B, P, V], the generator's logits of the masked tokens.
        input_ids: int32 [B, T], the input of the discriminator.
        replaced: bool [B, T], whether a token differs from the original; it does not if the
            generator predicts the original.
        replaced_logits: float32 [B, T], the discriminator's logits of `replaced`.
    """

    prediction_logits: jax.Array
    input_ids: jax.Array
    replaced: jax.Array
    replaced_logits: jax.Array


def generator_config(config: EncoderConfig, size: float) -> EncoderConfig:
    """The architecture of a generator.

    Args:
        config: architecture of the discriminator.
        size: width of the generator as a fraction of D; its heads and its feed-forward width follow
            (google-research/electra, configure_pretraining.py and util/training_utils.py).
    """
    heads = max(1, round(config.hidden_size * size) // _HEAD_WIDTH)
    width = max(heads, round(config.hidden_size * size) // heads * heads)
    return dataclasses.replace(
        config,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        embedding_size=config.embedding_width,
    )


class ReplacedTokenModel(EncoderWithHead):
    """The encoder with ELECTRA's discriminator: whether each token was replaced."""

    def setup(self) -> None:
        super().setup()
        self.replaced_token_head = TransformedOutput(
            self.config, self.execution, 1, self.config.hidden_act
        )

    def _head(self, encoded: EncoderOutput, deterministic: bool) -> jax.Array:
        """Logits, float32 [B, T]."""
        return self.replaced_token_head(encoded.last_hidden_state, deterministic)[..., 0]


class ReplacedTokenPretraining(ReplacedTokenModel):
    """A discriminator, and a generator that shares its embeddings.

    The layers of the generator are under "generator", its head under "mlm_head"; all other
    parameters belong to the discriminator.

    Attributes:
        generator_size: see `generator_config`.
        temperature: divides the generator's logits before a word is drawn.
    """

    generator_size: float = 0.25
    temperature: float = 1.0

    def setup(self) -> None:
        super().setup()
        config = generator_config(self.config, self.generator_size)
        self.generator = LayerStack(config, self.execution)
        self.mlm_head = MaskedLanguageModelHead(config, self.execution)

    def _apply(
        self, inputs: ModelInputs, deterministic: bool, requested: RequestedOutputs | None
    ) -> tuple[ReplacedTokenOutput, EncoderOutput]:
        """Computes the generator on masked tokens and the discriminator on the tokens it draws.

        Without `masked_lm_positions` they are the first; without `masked_lm_weights` none is used.
        In training each call draws other words, from the RNG stream "dropout"; with `deterministic`
        the same words are drawn in each call.
        """
        input_ids, positions = inputs.input_ids, inputs.masked_lm_positions
        if positions is None:
            positions = jnp.zeros_like(input_ids[:, :1])
        originals = jnp.take_along_axis(input_ids, positions, axis=1)
        is_masked = jnp.zeros(positions.shape, bool)
        if inputs.masked_lm_weights is not None:
            is_masked = inputs.masked_lm_weights > 0
        if inputs.masked_lm_ids is not None:
            originals = jnp.where(is_masked, inputs.masked_lm_ids, originals)
        generated = self.encoder.encode(inputs, deterministic, layers=self.generator)
        hidden = gather_positions(generated.last_hidden_state, positions)  # BPD
        logits = self.mlm_head(hidden, self.encoder.word_embeddings())
        key = jax.random.key(0) if deterministic else self.make_rng("dropout")
        drawn = draw_ids(logits, key, self.temperature)
        # An unused position keeps its token.
        replacements = jnp.where(is_masked, drawn, originals)
        rows = jnp.arange(len(input_ids))[:, None]
        corrupted = input_ids.at[rows, positions].set(replacements)
        replaced = jnp.zeros(input_ids.shape, bool)
        replaced = replaced.at[rows, positions].max(is_masked & (replacements != originals))
        inputs = dataclasses.replace(inputs, input_ids=corrupted)
        encoded = self.encoder.encode(inputs, deterministic, requested)
        replaced_logits = self._head(encoded, deterministic)
        return ReplacedTokenOutput(logits, corrupted, replaced, replaced_logits), encoded


def draw_ids(logits: jax.Array, key: jax.Array, temperature: float = 1.0) -> jax.Array:
    """A word for each position, drawn from softmax(logits / temperature); no gradient flows back.

    The argmax of logits and Gumbel noise has that distribution.

    Args:
        logits: float32 [B, P, V].
        key: key of the noise.
        temperature: greater than 0.

    Returns:
        int32 [B, P].
    """
    noise = jax.random.gumbel(key, logits.shape)
    return jax.lax.stop_gradient(logits / temperature + noise).argmax(axis=-1).astype(jnp.int32)


def generator_params(params: Any) -> Any:
    """The parameters of the generator as a `MaskedLMModel`, from the parameters of the training."""
    embeddings = params[ENCODER_SCOPE]["embeddings"]
    encoder = {"embeddings": embeddings, "encoder": params["generator"]}
    return {ENCODER_SCOPE: encoder, "mlm_head": params["mlm_head"]}


def _labels(draw: DrawnBatch) -> Labels:
    replaced = draw.classes(draw.ids.size, 2).reshape(draw.ids.shape)
    return {"labels": np.where(draw.mask, replaced, IGNORED_LABEL).astype(np.float32)}


def _loss(logits: Arrays, labels: Arrays, _: str) -> list[jax.Array]:
    return [sigmoid_cross_entropy(logits["logits"], labels["labels"])]


HEAD = Head(
    ReplacedTokenModel,
    axes=(
        # A generator has a fraction of the heads of its discriminator, which few meshes divide.
        ("generator/layers/attention/(query|key|value)/kernel", ("layers", "embed", None, "head")),
        ("generator/layers/attention/(query|key|value)/bias", ("layers", None, "head")),
        ("generator/layers/attention/output/kernel", ("layers", None, "head", "embed")),
        *dense_axes("replaced_token_head/(dense|out_proj)"),
    ),
    shown_by=(("replaced_token_head/dense/kernel",),),
    comparison=Comparison(("logits",), ("replaced_tokens",), _labels, ("logits",), _loss),
)
