"""The tokens of a text that each token of the generated text attends to: cross-attention."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.examples import Text
from bert_jax.data.pipeline import Batch
from bert_jax.generation.decoder import Generated
from bert_jax.models.encoder import RequestedOutputs
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.models.heads.text_to_text import TextToTextInputs, check_attention
from bert_jax.pictures.attention import AttentionMap, AttentionOfText
from bert_jax.tasks.attentions import ShownAttention, page
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec
from bert_jax.tasks.base.predictor import (
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
    check_finite,
    check_head,
)
from bert_jax.tasks.generate import GeneratePredictOptions, GenerationPredictor
from bert_jax.tokenization import Encoding


@dataclasses.dataclass(frozen=True, repr=False)
class Alignment(ShownAttention):
    """How much each token of the best generation attends to each token of the text.

    Attributes:
        source_tokens: S pieces of the text, special tokens included.
        tokens: U pieces of the generation, with the end token if there is one.
        generation: the generated text.
        weights: float32 [L, N, U, S], of each generated token (axis 2) the weights with which the
            decoder attends to the text (axis 3) before it writes the token; rows sum to 1. L is the
            number of layers with such attention: after a recurrent decoder there is one.
    """

    source_tokens: list[str]
    tokens: list[str]
    generation: str
    weights: np.ndarray

    def picture(self, title: str = "") -> AttentionOfText:
        layers = range(1, len(self.weights) + 1)
        name = "cross-attention"
        only = AttentionMap(name, self.tokens, self.source_tokens, self.weights, layers)
        title = title or " ".join(self.source_tokens)
        return AttentionOfText(f"{title} / {self.generation}", [only])


class _Outputs(NamedTuple):
    """Generations of B texts, and float32 [B, L, N, M, T] of the first of each."""

    generated: Generated
    weights: jax.Array


class AlignmentPredictor(Predictor[Text, Alignment]):
    """The cross-attention of the best generation of each text."""

    packs_rows = False
    chunk_batches = 1
    batch_work = GenerationPredictor.batch_work

    def __init__(self, model: Model, options: GeneratePredictOptions) -> None:
        """Makes the predictor of the generations.

        Raises:
            UserError: the model has no encoder and decoder, or no attention between them.
        """
        check_head(model, ("text_to_text",), "read a text with an encoder while it writes another")
        check_attention(model.config)
        super().__init__(model, options)
        self._writer = GenerationPredictor(model, options)

    def encode(self, examples: Sequence[Text]) -> Sequence[EncodedExample | ExampleError]:
        return self._writer.encode(examples)

    def inputs(self, arrays: Batch, rows: Mapping[int, Encoding]) -> Batch:
        return self._writer.inputs(arrays, rows)

    def warm_up_inputs(self, arrays: Batch) -> Iterator[Batch]:
        return self._writer.warm_up_inputs(arrays)

    def compute(self, batch: dict[str, jax.Array]) -> _Outputs:
        generated = self._writer.compute(batch)
        params, module = self.model.compute_params, self.model.module
        tokens = generated.token_ids[:, 0]
        weights = _weights(params, batch, tokens, module=module, start=self._writer.start)
        return _Outputs(generated, weights)

    def decode(self, example: Text, encoded: EncodedExample, outputs: list[Any]) -> Alignment:
        encoding, output = encoded.rows[0], outputs[0]
        best, *_ = self._writer.decode_row(encoding, output.generated)
        weights = output.weights[..., : len(best.token_ids), : len(encoding)].copy()
        tokens = [self.model.tokenizer.id_to_token(number) for number in best.token_ids]
        return Alignment(
            encoding.tokens, tokens, best.text, check_finite(weights, "the attention of a text")
        )


@functools.partial(jax.jit, static_argnames=("module", "start"))
def _weights(
    params: Any, batch: dict[str, jax.Array], tokens: jax.Array, *, module: Any, start: int
) -> jax.Array:
    """Tokens that were generated, int32 [B, M] → the weights, float32 [B, L, N, M, T]."""
    before = jnp.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=start)
    inputs = model_inputs({**batch, "decoder_input_ids": before}, TextToTextInputs)
    requested = RequestedOutputs(attentions=True)
    _, _, decoded = apply_model(module, params, inputs, encoder_outputs=requested)
    return decoded.cross_attentions.swapaxes(0, 1)


def to_record(text: Text, alignment: Alignment) -> Mapping[str, Any]:
    """An alignment as the fields of a JSON line."""
    return {
        "generation": alignment.generation,
        "source_tokens": alignment.source_tokens,
        "tokens": alignment.tokens,
        "cross_attentions": alignment.weights,
    }


PREDICT = PredictSpec(
    TEXTS,
    GeneratePredictOptions,
    AlignmentPredictor,
    to_record,
    {"html": page},
    endings={".html": "html"},
    heads=("text_to_text",),
    is_default=False,  # such a model generates
)
