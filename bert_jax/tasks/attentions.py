"""The attention weights between the tokens of a text."""

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.data.examples import Example, Text, texts_of
from bert_jax.errors import UserError
from bert_jax.models.encoder import Encoder, RequestedOutputs
from bert_jax.models.encoder_with_head import apply_model, model_inputs
from bert_jax.pictures.attention import AttentionMap, AttentionOfText, attention_page
from bert_jax.tasks.base.encoder_layers import encoder_of, layer_numbers
from bert_jax.tasks.base.predict_spec import (
    TEXTS,
    OutputFile,
    PredictOptions,
    PredictSpec,
    TextPredictOptions,
    without_columns,
)
from bert_jax.tasks.base.predictor import Model, check_finite
from bert_jax.tasks.base.short_repr import ShortRepr
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding


@dataclasses.dataclass(frozen=True)
class AttentionsPredictOptions(TextPredictOptions):
    """The options of `bert-jax predict` for attention weights.

    Attributes:
        batch_size: maximum number of rows per batch; each has L · N · T² values.
        layers: numbers of layers from 1, or -1, -2, … from the end; None: all.
    """

    batch_size: int = 8
    layers: Sequence[int] | None = None


class ShownAttention(ShortRepr, abc.ABC):
    """Attention weights; a notebook shows them as a picture."""

    @abc.abstractmethod
    def picture(self, title: str = "") -> AttentionOfText:
        """What a page shows; by default, the title are the tokens."""

    def _repr_html_(self) -> str | None:
        """The page; None, and text instead, where a page has too little space."""
        try:
            return attention_page([self.picture()])._repr_html_()
        except UserError:
            return None


@dataclasses.dataclass(frozen=True, repr=False)
class AttentionMaps(ShownAttention):
    """How much each token of a text attends to each other.

    Attributes:
        tokens: T pieces, special tokens included.
        weights: float32 [L, N, T, T] for L chosen layers and N heads, from each token (axis 2) to
            each (axis 3); rows sum to 1.
        layers: the numbers of the layers, from 1.
    """

    tokens: list[str]
    weights: np.ndarray
    layers: tuple[int, ...]

    def picture(self, title: str = "") -> AttentionOfText:
        only = AttentionMap("attention", self.tokens, self.tokens, self.weights, self.layers)
        return AttentionOfText(title or " ".join(self.tokens), [only])


class AttentionsPredictor(TextPredictor[AttentionMaps]):
    """The attention weights of some layers."""

    packs_rows = False
    chunk_batches = 1

    def __init__(self, model: Model, options: AttentionsPredictOptions) -> None:
        """Raises UserError where there is no such layer."""
        super().__init__(model, options)
        self._encoder, self._params = encoder_of(model)
        last = model.config.num_hidden_layers
        requested = range(1, last + 1) if options.layers is None else options.layers
        self._layers = layer_numbers(requested, first=1, last=last)

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _weights(self._params, batch, encoder=self._encoder, layers=self._layers)

    def output_values(self, length: int) -> int:
        return len(self._layers) * self.model.config.num_attention_heads * length**2

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> AttentionMaps:
        length = len(encoding)
        weights = check_finite(output[..., :length, :length].copy(), "the attentions of a text")
        return AttentionMaps(encoding.tokens, weights, self._layers)


@functools.partial(jax.jit, static_argnames=("encoder", "layers"))
def _weights(
    params: Any, batch: dict[str, jax.Array], *, encoder: Encoder, layers: tuple[int, ...]
) -> jax.Array:
    """A batch → attention weights of L chosen layers, float32 [B, L, N, T, T]."""
    requested = RequestedOutputs(attentions=True, attention_layers=layers)
    output = apply_model(encoder, params, model_inputs(batch), encoder_outputs=requested)
    return output.attentions.swapaxes(0, 1)


def page(options: PredictOptions) -> Sequence[OutputFile[Text, Any]]:
    """The output format of a page with pictures of all texts."""

    def row(example: Example[Text], maps: ShownAttention) -> str:
        try:
            return maps.picture(" / ".join(texts_of(example.input))).element()
        except UserError as error:
            raise UserError(f"{example.location}: {error}") from error

    return without_columns(OutputFile(row, attention_page().layout))(options)


PREDICT = PredictSpec(
    TEXTS,
    AttentionsPredictOptions,
    AttentionsPredictor,
    lambda text, maps: {"tokens": maps.tokens, "attentions": maps.weights},
    {"html": page},
    endings={".html": "html"},
)
