"""An encoder and a decoder that writes a text for the encoder's text.

Both are `Encoder`s. The config of a Transformer's decoder is causal and has cross-attention
(Vaswani et al., 2017). A recurrent decoder begins with the states in which the encoder's layers end
(Sutskever et al., 2014, https://arxiv.org/abs/1409.3215); with `decoder_attention` its outputs also
attend to those of the encoder.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bert_jax.errors import OptionError, UserError, require_at_least, require_one_of
from bert_jax.models.comparison import (
    IGNORED_LABEL,
    Comparison,
    DrawnBatch,
    Labels,
    cross_entropy_of_logits,
)
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.decoder_attention import SCORES, DecoderAttention
from bert_jax.models.decoding import DecoderCache, EncoderMemory
from bert_jax.models.encoder import Encoder, EncoderOutput, RequestedOutputs
from bert_jax.models.execution import Execution
from bert_jax.models.head import Head
from bert_jax.models.head_options import HeadOptions
from bert_jax.models.heads.causal_lm import LanguageModelHead
from bert_jax.models.packed_rows import EncoderInputs

DECODER_SCOPE = "decoder"
"""The name of the decoder among the parameters of a model."""

NO_ATTENTION = "none"


@dataclasses.dataclass(frozen=True)
class TextToTextOptions(HeadOptions):
    """The decoder; what it does not say is as in the encoder.

    Attributes:
        decoder_layers: number of layers; None: as the encoder.
        decoder_attention_heads: number of attention heads; None: as the encoder.
        decoder_ffn_dim: width inside the feed-forward block; None: as the encoder.
        decoder_start_token_id: id of the token before the first one; None: padding's.
        has_bias: whether the logits have a bias.
        scales_logits: whether hidden states are divided by sqrt(D) before the table of the head,
            unless `scale_decoder_outputs` says otherwise (T5).
        scale_decoder_outputs: None: if the head's table is the word embeddings.
        decoder_attention: the score of a recurrent decoder's attention, one of `SCORES`, or "none":
            the states in which the encoder ends are all that the decoder gets. The layers of a
            Transformer have their own.
    """

    keys = (
        "decoder_layers",
        "decoder_attention_heads",
        "decoder_ffn_dim",
        "decoder_start_token_id",
        "scale_decoder_outputs",
        "decoder_attention",
    )

    decoder_layers: int | None = None
    decoder_attention_heads: int | None = None
    decoder_ffn_dim: int | None = None
    decoder_start_token_id: int | None = None
    has_bias: bool = False
    scales_logits: bool = False
    scale_decoder_outputs: bool | None = None
    decoder_attention: str = NO_ATTENTION

    def check(self, config: EncoderConfig) -> None:
        """Checks the sizes; the decoder's config checks how they divide."""
        for key in ("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"):
            require_at_least(f"model.{key}", getattr(self, key), 1)
        is_scaled = self.scale_decoder_outputs
        if is_scaled not in (None, True, False):
            raise OptionError("model.scale_decoder_outputs", is_scaled, "it must be True or False")
        require_one_of("model.decoder_attention", self.decoder_attention, (NO_ATTENTION, *SCORES))
        start = self.decoder_start_token_id
        require_at_least("model.decoder_start_token_id", start, 0, config.vocab_size - 1)
        heads = self.decoder_attention_heads
        if heads and config.attention_head_size is None and config.hidden_size % heads:
            rule = f"{{model.hidden_size}}, {config.hidden_size}, must be a multiple of it"
            raise OptionError("model.decoder_attention_heads", heads, rule)


def decoder_config(config: EncoderConfig) -> EncoderConfig:
    """The architecture of the decoder of a model."""
    options = config.head_options(TextToTextOptions)
    return dataclasses.replace(
        config,
        num_hidden_layers=options.decoder_layers or config.num_hidden_layers,
        num_attention_heads=options.decoder_attention_heads or config.num_attention_heads,
        intermediate_size=options.decoder_ffn_dim or config.intermediate_size,
        is_causal=True,
        has_cross_attention=not config.is_recurrent,
        bidirectional=False,
        reverse_input=False,
        heads=(),
    )


def start_token(config: EncoderConfig) -> int:
    """The id of the token before the first token of an output."""
    start = config.head_options(TextToTextOptions).decoder_start_token_id
    return config.pad_token_id if start is None else start


def check_attention(config: EncoderConfig) -> None:
    """Refuses a model whose decoder does not attend to the encoder's outputs.

    Raises:
        UserError: it has no attention.
    """
    score = config.head_options(TextToTextOptions).decoder_attention
    if config.is_recurrent and score == NO_ATTENTION:
        raise UserError(
            "the decoder attends to nothing, model.decoder_attention is 'none'; give a model that "
            f"was trained with {', '.join(SCORES[:-1])} or {SCORES[-1]}"
        )


@struct.dataclass
class TextToTextInputs(EncoderInputs):
    """A text, [B, T], and the tokens of the output that the decoder reads, [B, U].

    Tokens of the output attend to the text of their own segment.

    Attributes:
        decoder_input_ids: int32 [B, U]; the first token is `start_token`.
        decoder_position_ids: as `position_ids`.
        decoder_segment_ids: as `segment_ids`.
    """

    decoder_input_ids: jax.Array | None = None
    decoder_position_ids: jax.Array | None = None
    decoder_segment_ids: jax.Array | None = None


class TextToTextModel(nn.Module):
    """Encoder, decoder, and a head for the next token of the output."""

    config: EncoderConfig
    execution: Execution = Execution()

    def setup(self) -> None:
        config, execution = self.config, self.execution
        options = config.head_options(TextToTextOptions)
        self.encoder = Encoder(config, execution, add_pooling_layer=False, name=ENCODER_SCOPE)
        # It has no word embeddings of its own: those of the encoder are handed in.
        self.decoder = Encoder(decoder_config(config), execution, add_pooling_layer=False)
        self.decoder_attention = None
        if options.decoder_attention != NO_ATTENTION:
            self.decoder_attention = DecoderAttention(config, execution, options.decoder_attention)
        is_scaled = options.scale_decoder_outputs
        is_scaled = config.tie_word_embeddings if is_scaled is None else is_scaled
        is_scaled &= options.scales_logits
        scale = 1 / math.sqrt(config.hidden_size) if is_scaled else 1.0
        self.lm_head = LanguageModelHead(config, execution, options.has_bias, scale)

    def __call__(
        self,
        *arrays: Any,
        deterministic: bool = True,
        encoder_outputs: RequestedOutputs | None = None,
        **named: Any,
    ) -> jax.Array | tuple[jax.Array, EncoderOutput, EncoderOutput]:
        """Float32 logits [B, U, V] of the token after each of U of the output.

        The inputs are `TextToTextInputs`, see `from_call`. With `encoder_outputs` the result also
        has the outputs of encoder and decoder.

        Raises:
            UserError: the decoder is recurrent, and the rows are packed; or attention is requested
                where there is none.
        """
        inputs = TextToTextInputs.from_call(*arrays, **named)
        decoder_input_ids = inputs.decoder_input_ids
        if decoder_input_ids is None:
            if not self.is_initializing():
                raise ValueError("the decoder has no tokens; give decoder_input_ids")
            decoder_input_ids = jnp.full_like(inputs.input_ids[:, :1], start_token(self.config))
        outputs = EncoderInputs(
            decoder_input_ids,
            position_ids=inputs.decoder_position_ids,
            segment_ids=inputs.decoder_segment_ids,
            row_indices=inputs.row_indices,
        )
        encoded, memory = self._encode(inputs, deterministic, encoder_outputs)
        decoded = self._decode(outputs, memory, deterministic, encoder_outputs, memory.states)
        logits = self._logits(decoded.last_hidden_state)
        return logits if encoder_outputs is None else (logits, encoded, decoded)

    def _encode(
        self,
        inputs: EncoderInputs,
        deterministic: bool,
        requested: RequestedOutputs | None = None,
    ) -> tuple[EncoderOutput, EncoderMemory]:
        """The output of the encoder, and what the decoder gets of it."""
        config, start = self.config, None
        if config.is_recurrent:
            requested = self._narrowed(requested)
            if inputs.segment_ids is not None:
                raise UserError(
                    "a recurrent decoder begins with the states of one text, but the rows have "
                    "several: set data.packing=False, or take another family"
                )
            start = DecoderCache.empty(config, self.execution, len(inputs.input_ids), 0)
        encoded = self.encoder.encode(inputs, deterministic, requested, cache=start)
        mask = inputs.tokens().mask
        return encoded, EncoderMemory(encoded.last_hidden_state, mask, encoded.cache)

    def _decode(
        self,
        inputs: EncoderInputs,
        memory: EncoderMemory,
        deterministic: bool,
        requested: RequestedOutputs | None = None,
        cache: DecoderCache | None = None,
    ) -> EncoderOutput:
        table = self.encoder.word_embeddings()
        if not self.config.is_recurrent:
            return self.decoder.encode(
                inputs, deterministic, requested, cache=cache, memory=memory, word_embeddings=table
            )
        decoded = self.decoder.encode(
            inputs, deterministic, self._narrowed(requested), cache=cache, word_embeddings=table
        )
        if self.decoder_attention is None:
            return decoded
        mask = inputs.tokens().mask
        hidden, weights = self.decoder_attention(decoded.last_hidden_state, mask, memory)
        if requested is not None and requested.attentions:
            decoded = decoded._replace(cross_attentions=weights[None, :, None])
        return decoded._replace(last_hidden_state=hidden)

    def _narrowed(self, requested: RequestedOutputs | None) -> RequestedOutputs | None:
        """What is requested of recurrent layers: attention comes after them."""
        if requested is None or not requested.attentions:
            return requested
        check_attention(self.config)
        return requested._replace(attentions=False)

    def _logits(self, hidden: jax.Array) -> jax.Array:
        return self.lm_head(hidden, self.encoder.word_embeddings())

    def memory(self, inputs: EncoderInputs) -> EncoderMemory:
        """The encoder's output for texts."""
        return self._encode(inputs, True)[1]

    def start(self, memory: EncoderMemory) -> DecoderCache:
        """The cache of the decoder before the first token of outputs for B texts."""
        if memory.states is not None:
            return memory.states
        rows = len(memory.tokens.key_ids)
        return DecoderCache.empty(decoder_config(self.config), self.execution, rows, 1)

    def decode(
        self, inputs: EncoderInputs, cache: DecoderCache, memory: EncoderMemory
    ) -> tuple[jax.Array, DecoderCache | None]:
        """The scores of the token after the last of T that follow those of a cache.

        Args:
            inputs: the T tokens of the outputs, with their positions.
            cache: the earlier tokens, see `start`.
            memory: the encoder's output.

        Returns:
            float32 [B, V], and the cache with the T tokens.
        """
        decoded = self._decode(inputs, memory, True, cache=cache)
        return self._logits(decoded.last_hidden_state[:, -1:])[:, 0], decoded.cache


def _labels(draw: DrawnBatch) -> Labels:
    """The texts without their first token: outputs that are shorter than the inputs."""
    return {"labels": np.where(draw.mask == 1, draw.ids, IGNORED_LABEL)[:, 1:].astype(np.int32)}


def _features(draw: DrawnBatch) -> Mapping[str, np.ndarray]:
    """The labels after the token that begins an output."""
    ids = draw.ids[:, :-1].copy()
    ids[:, 0] = start_token(draw.config)
    return {"decoder_input_ids": ids}


HEAD = Head(
    TextToTextModel,
    generates=True,
    axes=(
        (r"decoder_attention/(query|key|combination)/kernel", ("embed", None)),
        (r"decoder_attention/score/kernel", (None, None)),
    ),
    shown_by=(
        (f"{DECODER_SCOPE}/encoder/layers/cross_attention/query/kernel",),
        (f"{DECODER_SCOPE}/encoder/layers/recurrent/kernel",),
    ),
    options=TextToTextOptions,
    comparison=Comparison(
        ("logits",),
        ("text_to_text",),
        _labels,
        loss=cross_entropy_of_logits,
        reads_padding=True,  # the decoder's
        features=_features,
        has_decoder=True,
    ),
)
