"""Hidden states of the tokens of a text: the feature-based approach (paper, section 5.3)."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import OptionError
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder import Encoder
from bert_jax.tasks.base.predict_task import JSONL, PredictionTask, json_lines, open_texts
from bert_jax.tasks.base.predictor import BatchOptions, Model
from bert_jax.tasks.base.text_rows import TextPredictor
from bert_jax.tokenization import Encoding

COMBINATIONS = ("sum", "mean", "concatenate")

# Outputs of a window of batches wait on the host until it is their turn, and these are large: the
# attention weights of BERT-base for 512 tokens are 151 MB a text.
LARGE_OUTPUT_WINDOW = 1


@dataclasses.dataclass(frozen=True)
class TokenStates:
    """Hidden states of the tokens of a text.

    Attributes:
        tokens: T pieces, special tokens included.
        offsets: (start, end) of each in the characters of its text; (0, 0) for special tokens.
        states: float32 [T, D]; [T, L · D] for concatenated layers, [L, T, D] uncombined.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    states: np.ndarray


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
            raise OptionError("combine", combine, f"known are {', '.join(COMBINATIONS)}")
        super().__init__(model, dataclasses.replace(options, window=LARGE_OUTPUT_WINDOW))
        self._encoder, self._params = encoder_of(model)
        self._layers = layer_numbers(layers, first=0, last=model.config.num_hidden_layers)
        self._combine = combine

    def compute(self, batch: dict[str, jax.Array]) -> jax.Array:
        return _states(
            self._params, batch, encoder=self._encoder, layers=self._layers, combine=self._combine
        )

    def decode_row(self, encoding: Encoding, output: np.ndarray) -> TokenStates:
        real = output[..., : len(encoding), :].copy()
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
    output = apply_encoder(encoder, params, batch, hidden_states=not only_last)
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


def encoder_of(model: Model, *, with_pooler: bool = False) -> tuple[Encoder, Any]:
    """The encoder of a model with any head, and its parameters.

    Raises:
        OptionError: the model has no pooler.
    """
    module: Any = model.module
    params = model.params.get(ENCODER_SCOPE, model.params)
    names = ("embeddings", "encoder", "pooler") if with_pooler else ("embeddings", "encoder")
    if with_pooler and "pooler" not in params:
        raise OptionError(
            "pooling",
            "pooler",
            f"this {model.description.class_name} has no pooler: choose cls, mean or max",
        )
    encoder = Encoder(model.config, module.execution, add_pooling_layer=with_pooler)
    return encoder, {name: params[name] for name in names}


def apply_encoder(
    encoder: Encoder,
    params: Any,
    batch: dict[str, jax.Array],
    *,
    hidden_states: bool = False,
    attentions: bool = False,
) -> Any:
    """The `EncoderOutput` of a batch."""
    return encoder.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch["attention_mask"],
        output_hidden_states=hidden_states,
        output_attentions=attentions,
    )


def layer_numbers(layers: Sequence[int], *, first: int, last: int) -> tuple[int, ...]:
    """Layers counted from `first` to `last`; -1 is the last, -2 the one before it.

    Raises:
        OptionError: there is none, or one does not exist.
    """
    if len(layers) == 0:
        raise OptionError("layers", layers, f"give numbers from {first} to {last}")
    chosen = []
    for layer in layers:
        number = last + 1 + layer if layer < 0 else layer
        if not first <= number <= last:
            embeddings = " (0: the embeddings)" if first == 0 else ""
            raise OptionError(
                "layers",
                layers,
                f"this model has {first} to {last}{embeddings}, or -1 to {first - last - 1} from "
                "the end",
                problem=f"layer {layer} does not exist",
            )
        chosen.append(number)
    return tuple(chosen)


PREDICT = PredictionTask(
    open_texts,
    lambda model, options: HiddenStatesPredictor(
        model,
        options.batches(),
        layers=(-1,) if options.layers is None else options.layers,
        combine=options.combine,
    ),
    {
        JSONL: json_lines(
            lambda text, result: {
                "tokens": result.tokens,
                "offsets": result.offsets,
                "hidden_states": result.states,
            }
        )
    },
)
