"""Parts of all models: initialisers, linear layers, LayerNorm, and operations on vectors.

Dimensions have the letters of docs/concepts.md throughout the project.
"""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import affine

HIDDEN_AXES = ("batch", "length", "hidden")


def kernel_init(config: EncoderConfig) -> jax.nn.initializers.Initializer:
    """Truncated normal, cut at 2 sigma; its deviation is not corrected for the cut.

    Source: google-research/bert, modeling.py, create_initializer.
    """
    return nn.initializers.truncated_normal(config.initializer_range, lower=-2.0, upper=2.0)


def vocabulary_table_init(config: EncoderConfig) -> Callable[..., jax.Array]:
    """`kernel_init` for a table with one row per word; rows beyond V are padding, and 0.

    They are never looked up and no word score is computed from them, so their gradients are 0 as
    well: they change no norm, no update and no output.
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        words = kernel_init(config)(key, (config.vocab_size, *shape[1:]), dtype)
        return jnp.zeros(shape, dtype).at[: config.vocab_size].set(words)

    return init


class Dense(nn.Module):
    """A linear layer: kernel [I, O] and bias [O], where I and O may be several axes.

    Attributes:
        features: O, one axis or several.
        axes: number of axes of I.
        dtype: dtype of the output.
        kernel_init: initialiser of the kernel; the bias is initialised to 0.
    """

    features: tuple[int, ...]
    axes: int
    dtype: Any
    kernel_init: jax.nn.initializers.Initializer

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """[..., I] → [..., O]."""
        shape = (*inputs.shape[-self.axes :], *self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        bias = self.param("bias", nn.initializers.zeros, self.features)
        return affine(self.axes, inputs.astype(self.dtype), kernel, bias)


def dense(
    config: EncoderConfig,
    execution: Execution,
    features: int | tuple[int, ...],
    name: str,
    axes: int = 1,
) -> Dense:
    """A linear layer from the last axes to `features`."""
    return Dense(
        features if isinstance(features, tuple) else (features,),
        axes,
        jnp.dtype(execution.dtype),
        kernel_init(config),
        name=name,
    )


def layer_norm(config: EncoderConfig, execution: Execution, name: str) -> nn.LayerNorm:
    """LayerNorm over D, statistics in float32.

    Flax's defaults (epsilon 1e-6, variance as mean(x²) - mean(x)²) differ from BERT's.
    """
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        use_fast_variance=False,
        dtype=jnp.dtype(execution.dtype),
        name=name,
    )


class NoNorm(nn.Module):
    """A scale and a bias without normalisation (MobileBERT, section 4.2)."""

    dtype: Any

    @nn.compact
    def __call__(self, hidden: jax.Array) -> jax.Array:
        """[..., D] → [..., D]."""
        shape = hidden.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        return (hidden.astype(jnp.float32) * scale + bias).astype(self.dtype)


def norm(config: EncoderConfig, execution: Execution, name: str) -> nn.LayerNorm | NoNorm:
    """The normalisation of the config's `normalization_type`."""
    if config.normalization_type == "no_norm":
        return NoNorm(jnp.dtype(execution.dtype), name=name)
    return layer_norm(config, execution, name)


def gather_positions(hidden: jax.Array, positions: jax.Array) -> jax.Array:
    """The hidden states at chosen positions: [B, T, D], int32 [B, P] → [B, P, D]."""
    return jnp.take_along_axis(hidden, positions[:, :, None], axis=1)


def l2_normalize(vectors: jax.Array) -> jax.Array:
    """Vectors divided by their length; zeros stay zeros, and have gradients."""
    squares = jnp.square(vectors).sum(axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, 1e-24))


def cosines(u: jax.Array, v: jax.Array) -> jax.Array:
    """Cosines of pairs of vectors: two [..., D] → [...]; 0 for a zero vector."""
    return (l2_normalize(u) * l2_normalize(v)).sum(axis=-1)
