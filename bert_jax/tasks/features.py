"""What the encoder says of texts: their vectors, hidden states, attention (paper, section 5.3).

The functions read an iterator of texts and give an iterator of answers in the same order, in
constant memory. `LoadedModel` has methods that collect the answers.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError
from bert_jax.models import pooling as poolings
from bert_jax.models.bert import Bert
from bert_jax.models.layers import l2_normalize
from bert_jax.tasks.base.predictor import BatchOptions, Model
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding

COMBINATIONS = ("sum", "mean", "concatenate")

# The answers of a window wait for their turn on the host, and these are large: the attention of
# base to 512 tokens is 151 MB a text.
_LARGE_ANSWERS_WINDOW = 1


@dataclasses.dataclass(frozen=True)
class TokenStates:
    """Hidden states of the tokens of a text.

    Attributes:
        tokens: T pieces, [CLS] and [SEP] among them.
        offsets: (start, end) of each in the characters of its text; (0, 0) for special tokens.
        states: float32 [T, D], [T, K · D] for K concatenated layers, [K, T, D] uncombined.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    states: np.ndarray


@dataclasses.dataclass(frozen=True)
class AttentionMaps:
    """Where each token of a text looks.

    Attributes:
        tokens: T pieces, [CLS] and [SEP] among them.
        weights: float32 [K, N, T, T]: of K layers and N heads, from each token to each; rows sum
            to 1.
    """

    tokens: list[str]
    weights: np.ndarray


class EmbeddingPredictor(TextPredictor[np.ndarray]):
    """One vector for each text, float32 [D]."""

    def __init__(
        self, model: Model, options: BatchOptions, *, pooling: str = "mean", normalize: bool = False
    ) -> None:
        """For arguments see `LoadedModel.embed`.

        Raises:
            UserError: the pooling is unknown, or the model has no pooler.
        """
        if pooling not in poolings.POOLINGS:
            known = ", ".join(poolings.POOLINGS)
            raise UserError(f"pooling {pooling!r} is unknown; known are {known}")
        super().__init__(model, options)
        self._encoder, self._params = _encoder(model, with_pooler=pooling == "pooler")
        self._pooling, self._normalize = pooling, normalize

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _vectors(
            self._params,
            batch,
            encoder=self._encoder,
            pooling=self._pooling,
            normalize=self._normalize,
        )

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> np.ndarray:
        return output.copy()


class HiddenStatesPredictor(TextPredictor[TokenStates]):
    """The hidden states of some layers."""

    def __init__(
        self,
        model: Model,
        options: BatchOptions,
        *,
        layers: Sequence[int] = (-1,),
        combine: str | None = None,
    ) -> None:
        """For arguments see `LoadedModel.hidden_states`.

        Raises:
            UserError: there is no such layer or combination.
        """
        if combine is not None and combine not in COMBINATIONS:
            raise UserError(f"combine {combine!r} is unknown; known are {', '.join(COMBINATIONS)}")
        super().__init__(model, dataclasses.replace(options, window=_LARGE_ANSWERS_WINDOW))
        self._encoder, self._params = _encoder(model)
        self._layers = _layer_numbers(layers, first=0, last=model.config.num_hidden_layers)
        self._combine = combine

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _states(
            self._params, batch, encoder=self._encoder, layers=self._layers, combine=self._combine
        )

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> TokenStates:
        real = output[..., : len(encoding), :].copy()
        return TokenStates(encoding.tokens, encoding.offsets, real)


class AttentionsPredictor(TextPredictor[AttentionMaps]):
    """The attention weights of some layers."""

    def __init__(
        self, model: Model, options: BatchOptions, *, layers: Sequence[int] | None = None
    ) -> None:
        """For arguments see `LoadedModel.attentions`.

        Raises:
            UserError: there is no such layer.
        """
        super().__init__(model, dataclasses.replace(options, window=_LARGE_ANSWERS_WINDOW))
        self._encoder, self._params = _encoder(model)
        last = model.config.num_hidden_layers
        requested = range(1, last + 1) if layers is None else layers
        self._layers = _layer_numbers(requested, first=1, last=last)

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _weights(self._params, batch, encoder=self._encoder, layers=self._layers)

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> AttentionMaps:
        length = len(encoding)
        return AttentionMaps(encoding.tokens, output[..., :length, :length].copy())


def _encoder(model: Model, *, with_pooler: bool = False) -> tuple[Bert, Any]:
    """The encoder of any model, and its parameters.

    Raises:
        UserError: the pooler is wanted, and there is none.
    """
    module: Any = model.module
    params = model.params.get("bert", model.params)
    names = ("embeddings", "encoder", "pooler") if with_pooler else ("embeddings", "encoder")
    if with_pooler and "pooler" not in params:
        raise UserError(
            f"pooling 'pooler': this {model.description.class_name} has no pooler; "
            "choose cls, mean or max"
        )
    encoder = Bert(model.config, module.execution, add_pooling_layer=with_pooler)
    return encoder, {name: params[name] for name in names}


def _layer_numbers(layers: Sequence[int], *, first: int, last: int) -> tuple[int, ...]:
    """Layers counted from `first` to `last`; -1 is the last, -2 the one before it."""
    if len(layers) == 0:
        raise UserError(f"layers is empty; give numbers from {first} to {last}")
    chosen = []
    for layer in layers:
        number = last + 1 + layer if layer < 0 else layer
        if not first <= number <= last:
            raise UserError(
                f"layer {layer} does not exist; this model has {first} to {last}"
                f"{' (0: the embeddings)' if first == 0 else ''}, or -1 to {first - last - 1} "
                "from the end"
            )
        chosen.append(number)
    return tuple(chosen)


def _encode(
    encoder: Bert,
    params: Any,
    batch: dict[str, jax.Array],
    *,
    hidden_states: bool = False,
    attentions: bool = False,
) -> Any:
    """The `BertOutput` of a batch."""
    return encoder.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch["attention_mask"],
        output_hidden_states=hidden_states,
        output_attentions=attentions,
    )


@functools.partial(jax.jit, static_argnames=("encoder", "pooling", "normalize"))
def _vectors(
    params: Any, batch: dict[str, jax.Array], *, encoder: Bert, pooling: str, normalize: bool
) -> jax.Array:
    """A batch → float32 [B, D]."""
    output = _encode(encoder, params, batch)
    hidden = output.last_hidden_state.astype(jnp.float32)  # BTD
    mask = batch["attention_mask"].astype(bool)
    if pooling == "cls":
        vectors = poolings.cls(hidden)
    elif pooling == "pooler":
        vectors = output.pooler_output.astype(jnp.float32)
    elif pooling == "mean":
        vectors = poolings.masked_mean(hidden, mask)
    else:
        vectors = poolings.masked_max(hidden, mask)
    return l2_normalize(vectors) if normalize else vectors


@functools.partial(jax.jit, static_argnames=("encoder", "layers", "combine"))
def _states(
    params: Any,
    batch: dict[str, jax.Array],
    *,
    encoder: Bert,
    layers: tuple[int, ...],
    combine: str | None,
) -> jax.Array:
    """A batch → float32 [B, T, D], [B, T, K · D] or [B, K, T, D], see `TokenStates`."""
    only_last = set(layers) == {encoder.config.num_hidden_layers}
    output = _encode(encoder, params, batch, hidden_states=not only_last)
    # All layers take L + 1 times the memory of the last.
    by_layer = output.hidden_states
    kept = [output.last_hidden_state if only_last else by_layer[layer] for layer in layers]
    states = jnp.stack(kept, axis=1).astype(jnp.float32)  # BKTD
    if combine == "sum":
        return states.sum(axis=1)
    if combine == "mean":
        return states.mean(axis=1)
    if combine == "concatenate":
        states = states.swapaxes(1, 2)  # BTKD
        return states.reshape(*states.shape[:2], -1)
    return states


@functools.partial(jax.jit, static_argnames=("encoder", "layers"))
def _weights(
    params: Any, batch: dict[str, jax.Array], *, encoder: Bert, layers: tuple[int, ...]
) -> jax.Array:
    """A batch → attention weights of K layers, float32 [B, K, N, T, T]."""
    output = _encode(encoder, params, batch, attentions=True)
    return jnp.stack([output.attentions[layer - 1] for layer in layers], axis=1)
