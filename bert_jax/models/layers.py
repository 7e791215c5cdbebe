"""The small parts that every floor of the network shares: dense, LayerNorm, activation.

One alphabet of dimensions in the whole project: B batch, T tokens, S source tokens, N heads,
H head width, D model width, F feed-forward width, V vocabulary, P predictions, L layers, K texts
of a packed row.
"""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import BertConfig, Execution
from bert_jax.models.products import dot_general

HIDDEN_AXES = ("batch", "length", "hidden")


def kernel_init(config: BertConfig) -> jax.nn.initializers.Initializer:
    """Truncated normal, cut at 2 sigma, its deviation not corrected for the cut.

    Source: google-research/bert, modeling.py, create_initializer.
    """
    return nn.initializers.truncated_normal(config.initializer_range, lower=-2.0, upper=2.0)


def word_rows_init(config: BertConfig) -> Callable[..., jax.Array]:
    """`kernel_init` for a table with a row for each word; rows beyond V are padding, and 0.

    No word is ever read from them, and no word score is ever read off them, so their gradients are
    0 as well: they change no norm, no update, and nothing that anybody sees.
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        words = kernel_init(config)(key, (config.vocab_size, *shape[1:]), dtype)
        return jnp.zeros(shape, dtype).at[: config.vocab_size].set(words)

    return init


def activation(name: str) -> Callable[[jax.Array], jax.Array]:
    """The function behind `hidden_act`.

    `approximate` is always spelled out: JAX defaults to the tanh form, "gelu" means the erf form.
    """
    functions = {
        "gelu": lambda x: jax.nn.gelu(x, approximate=False),
        "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
        "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
        "relu": jax.nn.relu,
        "silu": jax.nn.silu,
        "swish": jax.nn.silu,
        "tanh": jnp.tanh,
    }
    return functions[name]


def dense(
    config: BertConfig,
    execution: Execution,
    features: int | tuple[int, ...],
    name: str,
    axis: int | tuple[int, ...] = -1,
) -> nn.DenseGeneral:
    """An affine map of the axes `axis` to `features`: kernel [axes, features], bias [features]."""
    return nn.DenseGeneral(
        features,
        axis=axis,
        dtype=jnp.dtype(execution.dtype),
        kernel_init=kernel_init(config),
        dot_general=dot_general,
        name=name,
    )


def layer_norm(config: BertConfig, execution: Execution, name: str) -> nn.LayerNorm:
    """LayerNorm over D, statistics in float32.

    Flax's defaults (epsilon 1e-6, variance as E[x²] - E[x]²) are not BERT's.
    """
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        use_fast_variance=False,
        dtype=jnp.dtype(execution.dtype),
        name=name,
    )
