"""Hidden states of the tokens of a text: the feature-based approach (paper, section 5.3)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import require_one_of
from bert_jax.models.encoder import Encoder, RequestedOutputs
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.tasks.base.encoder_layers import encoder_of, layer_numbers
from bert_jax.tasks.base.predict_spec import TEXTS, PredictSpec, TextPredictOptions
from bert_jax.tasks.base.predictor import Model, check_finite
from bert_jax.tasks.base.short_repr import ShortRepr
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding

COMBINATIONS = ("sum", "mean", "concatenate")


@dataclasses.dataclass(frozen=True)
class HiddenStatesPredictOptions(TextPredictOptions):
    """The options of `bert-jax predict`.

    Attributes:
        layers: numbers of layers, 0 for the embeddings; -1 is the last layer.
        combine: "sum", "mean" or "concatenate" (along D) of the layers; None: kept separate.
    """

    layers: Sequence[int] = (-1,)
    combine: str | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class TokenStates(ShortRepr):
    """Hidden states of the tokens of a text.

    Attributes:
        tokens: T pieces, special tokens included.
        offsets: (start, end) of each token in characters of the text; (0, 0) for special tokens.
        states: float32 [T, D]; [T, L · D] for concatenated layers, [L, T, D] uncombined.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    states: np.ndarray


class HiddenStatesPredictor(TextPredictor[TokenStates]):
    """The hidden states of some layers."""

    # Packed rows have the hidden states of the last layer only, and chunks too few rows to pack.
    packs_rows = False
    chunk_batches = 1

    def __init__(self, model: Model, options: HiddenStatesPredictOptions) -> None:
        """Raises UserError where there is no such layer or combination."""
        require_one_of("combine", options.combine, (None, *COMBINATIONS))
        super().__init__(model, options)
        self._encoder, self._params = encoder_of(model)
        self._layers = layer_numbers(options.layers, first=0, last=model.config.num_hidden_layers)
        self._combine = options.combine

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _states(
            self._params, batch, encoder=self._encoder, layers=self._layers, combine=self._combine
        )

    def output_values(self, length: int) -> int:
        layers = 1 if self._combine in ("sum", "mean") else len(self._layers)
        return layers * self.model.config.hidden_size * length

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> TokenStates:
        real = check_finite(output[..., : len(encoding), :].copy(), "the hidden states of a text")
        return TokenStates(encoding.tokens, encoding.offsets, real)


@functools.partial(jax.jit, static_argnames=("encoder", "layers", "combine"))
def _states(
    params: Any,
    batch: dict[str, jax.Array],
    *,
    encoder: Encoder,
    layers: tuple[int, ...],
    combine: str | None,
) -> jax.Array:
    """A batch → float32 [B, T, D], [B, T, L · D] or [B, L, T, D], see `TokenStates`."""
    only_last = set(layers) == {encoder.config.num_hidden_layers}
    requested = RequestedOutputs(hidden_states=not only_last)
    output = apply_model(encoder, params, model_inputs(batch), encoder_outputs=requested)
    # All layers take L + 1 times the memory of the last.
    by_layer = output.hidden_states
    kept = [output.last_hidden_state if only_last else by_layer[layer] for layer in layers]
    states = jnp.stack(kept, axis=1).astype(jnp.float32)  # BLTD
    if combine == "sum":
        return states.sum(axis=1)
    if combine == "mean":
        return states.mean(axis=1)
    if combine == "concatenate":
        states = states.swapaxes(1, 2)  # BTLD
        return states.reshape(*states.shape[:2], -1)
    return states


PREDICT = PredictSpec(
    TEXTS,
    HiddenStatesPredictOptions,
    HiddenStatesPredictor,
    lambda text, result: {
        "tokens": result.tokens,
        "offsets": result.offsets,
        "hidden_states": result.states,
    },
)
