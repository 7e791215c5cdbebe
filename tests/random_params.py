"""Small configs and random parameters, for tests in which their values do not matter."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import abstract_params


def small_config(**fields: Any) -> EncoderConfig:
    """V 50, L 2, D 16, N 2, F 24, 12 positions, no dropout; with other values of some fields."""
    small = {
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 12,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return EncoderConfig(**small | fields)


def random_params(
    module: nn.Module, *, seed: int = 0, scale: float = 0.2, all_differ: bool = False
) -> Any:
    """Parameters of a module, drawn by NumPy: nothing is compiled.

    Scales are 1, biases 0, or with `all_differ` near to it; all others have the standard deviation
    `scale`.
    """
    draw = np.random.default_rng(seed)

    def leaf(path: tuple[Any, ...], shape: jax.ShapeDtypeStruct) -> np.ndarray:
        mean = float(path[-1].key == "scale")
        if path[-1].key in ("scale", "bias") and not all_differ:
            return np.full(shape.shape, mean, np.float32)
        return draw.normal(mean, scale, shape.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(leaf, abstract_params(module))
