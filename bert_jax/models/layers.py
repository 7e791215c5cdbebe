"""Parts of all models: initialisers, linear layers, LayerNorm, and operations on vectors.

Dimensions have the letters of docs/concepts.md throughout the project.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import affine

HIDDEN_AXES = ("batch", "length", "hidden")


def initial_deviation(config: EncoderConfig, name: str, inputs: int) -> float:
    """The standard deviation of a new matrix, by `initial_values`.

        equal      initializer_range for all
        residual   the same, divided by sqrt(2 L) for the last matrix of each sub-layer (GPT-2,
                   section 2.3)
        fan_in     1 / sqrt(I); for queries 1 / sqrt(I H), as scores are not divided by sqrt(H)
                   (T5: mesh_tensorflow; transformers, modeling_t5.py, _init_weights)

    Args:
        config: architecture of the model.
        name: name of the layer, such as "query".
        inputs: I, number of inputs of the matrix.
    """
    if config.initial_values == "fan_in":
        return (inputs * (config.head_dim if name == "query" else 1)) ** -0.5
    is_last = config.initial_values == "residual" and name == "output"
    return config.initializer_range / (math.sqrt(2 * config.num_hidden_layers) if is_last else 1)


def kernel_init(config: EncoderConfig, name: str = "", axes: int = 1) -> Callable[..., jax.Array]:
    """Truncated normal, cut at 2 sigma; its deviation is not corrected for the cut.

    Source: google-research/bert, modeling.py, create_initializer. T5's is not cut.

    Args:
        config: architecture of the model.
        name: see `initial_deviation`.
        axes: number of axes of the inputs.
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        deviation = initial_deviation(config, name, math.prod(shape[:axes]))
        if config.initial_values == "fan_in":
            return deviation * jax.random.normal(key, shape, dtype)
        draw = nn.initializers.truncated_normal(deviation, lower=-2.0, upper=2.0)
        return draw(key, shape, dtype)

    return init


def vocabulary_table_init(config: EncoderConfig) -> Callable[..., jax.Array]:
    """A table with one row per token; rows beyond V are padding, and 0.

    Tokens are as of `kernel_init`; with `initial_values` "fan_in" their deviation is 1.

    Padding is never looked up and no score is computed from it, so its gradients are 0 as well: it
    changes no norm, no update and no output.
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        shape_of_tokens = (config.vocab_size, *shape[1:])
        if config.initial_values == "fan_in":
            tokens = jax.random.normal(key, shape_of_tokens, dtype)
        else:
            tokens = kernel_init(config)(key, shape_of_tokens, dtype)
        return jnp.zeros(shape, dtype).at[: config.vocab_size].set(tokens)

    return init


class Dense(nn.Module):
    """A linear layer: kernel [I, O] and bias [O], where I and O may be several axes.

    Attributes:
        features: O, one axis or several.
        axes: number of axes of I.
        dtype: dtype of the output.
        kernel_init: initialiser of the kernel; the bias is initialised to 0.
        use_bias: whether it has a bias.
    """

    features: tuple[int, ...]
    axes: int
    dtype: Any
    kernel_init: Callable[..., jax.Array]
    use_bias: bool = True

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """[..., I] → [..., O]."""
        shape = (*inputs.shape[-self.axes :], *self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, self.features)
        else:
            bias = jnp.zeros(self.features)
        return affine(self.axes, inputs.astype(self.dtype), kernel, bias)


def dense(
    config: EncoderConfig,
    execution: Execution,
    features: int | tuple[int, ...],
    name: str,
    axes: int = 1,
    *,
    use_bias: bool = True,
) -> Dense:
    """A linear layer from the last axes to `features`."""
    return Dense(
        features if isinstance(features, tuple) else (features,),
        axes,
        jnp.dtype(execution.dtype),
        kernel_init(config, name, axes),
        use_bias,
        name=name,
    )


def layer_norm(config: EncoderConfig, execution: Execution, name: str) -> nn.LayerNorm:
    """LayerNorm over D, statistics in float32.

    Flax's defaults (epsilon 1e-6, variance as mean(x²) - mean(x)²) differ from BERT's.
    """
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        use_fast_variance=False,
        use_bias=config.has_norm_biases,
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


def norm(
    config: EncoderConfig, execution: Execution, name: str
) -> nn.LayerNorm | nn.RMSNorm | NoNorm:
    """The normalisation of the config's `normalization_type`.

    "rms_norm" divides by the root of the mean square (Zhang and Sennrich, 2019,
    https://arxiv.org/abs/1910.07467): no mean is subtracted, and there is no bias.
    """
    dtype = jnp.dtype(execution.dtype)
    if config.normalization_type == "no_norm":
        return NoNorm(dtype, name=name)
    if config.normalization_type == "rms_norm":
        return nn.RMSNorm(epsilon=config.layer_norm_eps, dtype=dtype, name=name)
    return layer_norm(config, execution, name)


def gather_positions(hidden: jax.Array, positions: jax.Array) -> jax.Array:
    """The hidden states at chosen positions: [B, T, D], int32 [B, P] → [B, P, D]."""
    return jnp.take_along_axis(hidden, positions[:, :, None], axis=1)


def l2_normalize(vectors: jax.Array) -> jax.Array:
    """Vectors divided by their length; zeros stay zeros, and have gradients."""
    squares = jnp.square(vectors).sum(axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, 1e-24))


def jax_similarities(left: jax.Array, right: jax.Array, kind: str) -> jax.Array:
    """How similar every vector is to every other, as `metrics.similarity.similarities`.

    Args:
        left: float32 [B, X].
        right: float32 [M, X].
        kind: "cosine", which rounding can make 1.0000001, "dot", "euclidean" or "manhattan".
            Gradients of distances take memory for all B · M · X differences.

    Returns:
        float32 [B, M].
    """
    match kind:
        case "dot":
            return jnp.inner(left, right, precision=jax.lax.Precision.HIGHEST)
        case "manhattan":
            return -jnp.abs(left[:, None] - right).sum(axis=-1)
        case "euclidean":
            # Not from products, whose rounding would make equal vectors distant.
            squares = jnp.square(left[:, None] - right).sum(axis=-1)
            # The root has no gradient at 0.
            return -jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
    lengths = jnp.sqrt(jnp.maximum(jnp.square(right).sum(axis=-1), 1e-24))  # M
    return jax_similarities(l2_normalize(left), right, "dot") / lengths


def cosines(u: jax.Array, v: jax.Array) -> jax.Array:
    """Cosines of pairs of vectors: two [..., D] → [...]; 0 for a zero vector."""
    return (l2_normalize(u) * l2_normalize(v)).sum(axis=-1)
