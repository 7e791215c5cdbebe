"""Factors of the learning rate: by layer, for head and encoder, and 0 for frozen parameters.

A factor is a float32 array that broadcasts against its parameter: a scalar, or [L, 1, …] for the
parameters of an encoder's layers, which are stacked. A factor of 0 freezes.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import OptionError
from bert_jax.models.head import head_parameters
from bert_jax.sharding.rules import match_tree

EMBEDDINGS, LAYERS, LAST_NORM, POOLER, HEAD = "embeddings", "layers", "norm", "pooler", "head"

# The group of each parameter of an encoder, of which a model may have several.
_ENCODER_GROUPS: tuple[tuple[str, str], ...] = (
    (r"(^|/)(embeddings|embedding_projection|relative_\w+|convolution)/", EMBEDDINGS),
    ("(^|/)layers/", LAYERS),
    ("(^|/)encoder/final_norm/", LAST_NORM),
    ("(^|/)(pooler|encoder)/", POOLER),
)


def rate_factors(
    params: Any,
    *,
    layer_decay: float = 1.0,
    head_factor: float = 1.0,
    frozen_layers: int = 0,
    freeze_encoder: bool = False,
) -> Any:
    """The factor of each parameter's learning rate.

    With L layers, layer l = 1 … L learns at layer_decay^(L + 1 - l), the embeddings at
    layer_decay^(L + 1), the last LayerNorm and the pooler at 1, the head at `head_factor`. The
    source is ELECTRA (finetune/…/model/optimization.py), but ELECTRA counts the pooler as one more
    layer, so that its top layer gets the decay twice (google-research/electra#51). Each encoder of
    a model counts its own layers; L of the embeddings is that of the deepest.

    Args:
        params: parameters, or their shapes, of any model of `models/`.
        layer_decay: ratio of a layer's learning rate to the rate of the layer above.
        head_factor: factor of the parameters outside the encoder.
        frozen_layers: number of lowest layers that are frozen, with the embeddings; 0: none.
        freeze_encoder: whether layers, embeddings and last LayerNorm are frozen. The pooler is not:
            a checkpoint may have none, then it is randomly initialised like the head.

    Raises:
        OptionError: the model has fewer layers, or nothing is left to train.
    """
    groups = match_tree((*_ENCODER_GROUPS, (head_parameters(), HEAD)), params)
    pairs = zip(jax.tree.leaves(groups), jax.tree.leaves(params), strict=True)
    count = max((leaf.shape[0] for group, leaf in pairs if group == LAYERS), default=0)
    if frozen_layers > count:
        raise OptionError(
            "optimizer.freeze_layers", frozen_layers, f"this model has {count} layers"
        )
    frozen = count if freeze_encoder else frozen_layers
    scalars = {
        EMBEDDINGS: 0.0 if frozen else layer_decay ** (count + 1),
        LAST_NORM: 0.0 if freeze_encoder else 1.0,
        POOLER: 1.0,
        HEAD: head_factor,
    }

    def factor(group: str, leaf: Any) -> np.ndarray:
        if group == LAYERS:
            layers = np.array([layer_decay**above for above in range(leaf.shape[0], 0, -1)])
            layers[:frozen] = 0
            return layers.reshape(-1, *[1] * (leaf.ndim - 1)).astype(np.float32)  # [L, 1, …]
        return np.asarray(scalars[group], np.float32)

    factors = jax.tree.map(factor, groups, params)
    if not any(factor.any() for factor in jax.tree.leaves(factors)):
        raise OptionError(
            "optimizer.freeze_encoder",
            freeze_encoder,
            "change {optimizer.freeze_encoder} or {optimizer.freeze_layers}",
            problem="this model has no head, and nothing else is left to train",
        )
    return factors


def stop_frozen_gradients(params: Any, factors: Any) -> Any:
    """The parameters, where frozen ones get a gradient of exactly 0.

    For a parameter that is entirely frozen, the backward pass is not computed; for stacked layers
    that are frozen in part, it is computed for all.
    """

    def stop(param: jax.Array, factor: np.ndarray) -> jax.Array:
        if factor.all():
            return param
        fixed = jax.lax.stop_gradient(param)
        return jnp.where(factor > 0, param, fixed) if factor.any() else fixed

    return jax.tree.map(stop, params, factors)


def apply_updates(params: Any, direction: Any, rate: jax.Array, factors: Any) -> Any:
    """`params - rate · factor · direction`; frozen parameters stay bitwise the same."""

    def apply(param: jax.Array, update: jax.Array, factor: np.ndarray) -> jax.Array:
        if not factor.any():
            return param
        new = param - (rate if (factor == 1).all() else rate * factor) * update
        return new if factor.all() else jnp.where(factor > 0, new, param)

    return jax.tree.map(apply, params, direction, factors)
