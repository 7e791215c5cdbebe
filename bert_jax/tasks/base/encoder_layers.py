"""The encoder of a model with any head, and the numbers of its layers."""

from collections.abc import Sequence
from typing import Any

from bert_jax.errors import INT32_MAX, OptionError, require_at_least
from bert_jax.models.config import ENCODER_SCOPE
from bert_jax.models.encoder import Encoder
from bert_jax.tasks.base.predictor import Model


def encoder_of(model: Model, *, with_pooler: bool = False) -> tuple[Encoder, Any]:
    """The encoder of a model with any head, and its parameters.

    Raises:
        OptionError: the model has no pooler.
    """
    module: Any = model.module
    params = model.compute_params.get(ENCODER_SCOPE, model.compute_params)
    names = ("embeddings", "encoder", "pooler") if with_pooler else ("embeddings", "encoder")
    if with_pooler and "pooler" not in params:
        raise OptionError(
            "pooling",
            "pooler",
            f"this {model.description.class_name} has no pooler: choose cls, mean or max",
        )
    encoder = Encoder(model.config, module.execution, add_pooling_layer=with_pooler)
    return encoder, {name: params[name] for name in names}


def layer_numbers(layers: Sequence[int], *, first: int, last: int) -> tuple[int, ...]:
    """Resolved layer numbers from `first` to `last`; -1 is the last layer, -2 the layer before it.

    Raises:
        OptionError: the list is empty, or a layer does not exist.
    """
    if len(layers) == 0:
        raise OptionError("layers", layers, f"give numbers from {first} to {last}")
    chosen = []
    for layer in layers:
        require_at_least("layers", layer, -INT32_MAX)
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
