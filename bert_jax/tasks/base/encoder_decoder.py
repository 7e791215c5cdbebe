"""The loss of an encoder-decoder, for batches as of `data.pair_rows`."""

import abc
import dataclasses
from typing import Any

import jax

from bert_jax.models.decoder_attention import attention_flops
from bert_jax.models.encoder_with_head import model_inputs
from bert_jax.models.heads.text_to_text import (
    NO_ATTENTION,
    TextToTextInputs,
    TextToTextOptions,
    decoder_config,
)
from bert_jax.tasks.base.task import ComputedModel, Sums, Task
from bert_jax.tasks.base.token_losses import perplexity, token_sums

DECODER = "decoder"
"""The kind of a batch's rows that the decoder reads, see `row_kinds`."""

_INPUTS = ("input_ids", "position_ids", "segment_ids")


class EncoderDecoderTask(Task):
    """Training of a model with the head `text_to_text`.

        loss = mean over the tokens of the targets of
               KL(smoothed label ‖ p(token | source, target before it))

    Metrics: `loss`, `cross_entropy` (without smoothing), `perplexity` and `accuracy` of tokens.

    Attributes:
        label_smoothing: ε, see `smoothed_cross_entropy`.
    """

    derived_metrics = ("perplexity",)  # of cross_entropy
    label_smoothing: float = 0.0

    @property
    @abc.abstractmethod
    def mean_source_length(self) -> float:
        """The mean number of tokens of a source."""

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        """The encoder with what the decoder's attention computes of its output, and the decoder."""
        encoder = self.description.config
        decoder = decoder_config(encoder)
        width, attention = decoder.hidden_size, decoder.num_attention_heads * decoder.head_dim
        score = encoder.head_options(TextToTextOptions).decoder_attention
        if score != NO_ATTENTION:
            source_flops, target_flops = attention_flops(score, width, self.mean_source_length)
        elif decoder.has_cross_attention:
            # Keys and values; queries, outputs, scores and weighted sums.
            source_flops = decoder.num_hidden_layers * 4.0 * width * attention
            target_flops = (
                source_flops + decoder.num_hidden_layers * 4 * attention * self.mean_source_length
            )
        else:
            source_flops = target_flops = 0.0
        target_flops += 2 * width * decoder.vocab_size
        return (
            ComputedModel(encoder, False, source_flops, rows=("",)),
            ComputedModel(decoder, False, target_flops, rows=(DECODER,)),
        )

    def inputs(self, batch: dict[str, jax.Array]) -> TextToTextInputs:
        decoder_inputs: dict[str, Any] = {
            f"{DECODER}_{name}": batch[key]
            for name in _INPUTS
            if (key := f"{DECODER}/{name}") in batch
        }
        inputs: TextToTextInputs = model_inputs(batch, TextToTextInputs)
        return dataclasses.replace(inputs, **decoder_inputs)

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The number of tokens of the targets."""
        return {"": batch[f"{DECODER}/weights"].sum()}

    def loss(self, params: Any, outputs: jax.Array, batch: dict[str, jax.Array]) -> Sums:
        sums = token_sums(
            outputs,
            batch[f"{DECODER}/labels"],
            batch[f"{DECODER}/weights"],
            smoothing=self.label_smoothing,
            vocab_size=self.description.config.vocab_size,
        )
        return {"": sums}

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Adds the perplexity of a token."""
        return {**metrics, "perplexity": perplexity(metrics["cross_entropy"])}
