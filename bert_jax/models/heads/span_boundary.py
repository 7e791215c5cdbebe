"""The span-boundary objective of SpanBERT (Joshi et al., 2020, section 3.2).

A masked token is predicted a second time: from the two tokens next to its span and from its
position in the span. Only a training has this head; exported models do not.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import EncoderOutput, RequestedOutputs
from bert_jax.models.encoder_with_head import ModelInputs
from bert_jax.models.execution import Execution
from bert_jax.models.head import Head
from bert_jax.models.heads.masked_lm import MaskedLMModel, padded_bias, vocabulary_logits
from bert_jax.models.layers import HIDDEN_AXES, dense, gather_positions, kernel_init, layer_norm

# Width of the embeddings of positions in a span (SpanBERT, section 3.2).
POSITION_WIDTH = 200


class SpanBoundaryOutput(NamedTuple):
    """Logits of the masked tokens from both heads, float32 [B, P, V] each.

    Attributes:
        prediction_logits: logits of the masked-language-model head.
        span_logits: logits from the boundaries of the spans.
    """

    prediction_logits: jax.Array
    span_logits: jax.Array


class _Layer(nn.Module):
    """dense → activation → LayerNorm, to a width."""

    config: EncoderConfig
    execution: Execution
    width: int

    @nn.compact
    def __call__(self, vectors: jax.Array) -> jax.Array:
        vectors = dense(self.config, self.execution, self.width, "dense")(vectors)
        vectors = ACTIVATIONS[self.config.hidden_act](vectors)
        vectors = layer_norm(self.config, self.execution, "layer_norm")(vectors)
        return nn.with_logical_constraint(vectors, HIDDEN_AXES)


class SpanBoundaryHead(nn.Module):
    """Logits of all words from the boundaries of spans: two layers → word embeddings.

    Source: facebookresearch/SpanBERT, pair_bert.py, BertPairTargetPredictionHead.

    Attributes:
        max_targets: number of positions of a span that are predicted.
    """

    config: EncoderConfig
    execution: Execution
    max_targets: int

    @nn.compact
    def __call__(
        self, left: jax.Array, right: jax.Array, positions: jax.Array, word_embeddings: jax.Array
    ) -> jax.Array:
        """The logits of tokens in spans.

        Args:
            left: [B, P, D], hidden states of the tokens before the spans.
            right: [B, P, D], hidden states of the tokens after the spans.
            positions: int32 [B, P], position of each token in its span, from 0.
            word_embeddings: [V, E].

        Returns:
            float32 [B, P, V].
        """
        table = nn.Embed(
            self.max_targets,
            POSITION_WIDTH,
            dtype=left.dtype,
            embedding_init=kernel_init(self.config),
            name="place_embeddings",
        )
        vectors = jnp.concatenate([left, right, table(positions)], axis=-1)
        vectors = _Layer(self.config, self.execution, self.config.hidden_size, name="first")(
            vectors
        )
        rows, width = word_embeddings.shape
        vectors = _Layer(self.config, self.execution, width, name="second")(vectors)
        bias = self.param("bias", nn.initializers.zeros, (rows,))
        return vocabulary_logits(vectors, word_embeddings, padded_bias(self.config, bias))


class SpanBoundaryModel(MaskedLMModel):
    """The encoder with the masked-language-model head and the span-boundary head."""

    max_targets: int = 20

    def setup(self) -> None:
        super().setup()
        self.span_boundary_head = SpanBoundaryHead(self.config, self.execution, self.max_targets)

    def _apply(
        self, inputs: ModelInputs, deterministic: bool, requested: RequestedOutputs | None
    ) -> tuple[SpanBoundaryOutput, EncoderOutput]:
        """Applies both heads; positions that are None are 0."""
        encoded = self.encoder.encode(inputs, deterministic, requested)
        first = jnp.zeros_like(inputs.input_ids[:, :1])
        masked, before, after = (
            first if positions is None else positions
            for positions in (
                inputs.masked_lm_positions,
                inputs.span_left_positions,
                inputs.span_right_positions,
            )
        )
        hidden, left, right = (
            gather_positions(encoded.last_hidden_state, positions)  # BPD
            for positions in (masked, before, after)
        )
        words = self.encoder.word_embeddings()
        in_span = jnp.clip(masked - before - 1, 0, self.max_targets - 1)
        output = SpanBoundaryOutput(
            prediction_logits=self.mlm_head(hidden, words),
            span_logits=self.span_boundary_head(left, right, in_span, words),
        )
        return output, encoded


HEAD = Head(
    axes=(
        ("span_boundary_head/bias", ("vocab",)),
        # The inputs are 2 D + 200 wide, which few sizes of a mesh divide.
        (r"span_boundary_head/\w+/dense/kernel", (None, "embed")),
        (r"span_boundary_head/(\w+/dense/bias|place_embeddings/embedding)", ()),
    )
)
