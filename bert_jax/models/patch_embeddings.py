"""The embeddings of images: patches, [CLS] and positions (ViT, section 3.1).

Dosovitskiy et al., 2021 (https://arxiv.org/abs/2010.11929); the distillation token is of DeiT,
Touvron et al., 2021 (https://arxiv.org/abs/2012.12877, section 4).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.image_options import ImageOptions
from bert_jax.models.kernels.matmul import affine
from bert_jax.models.layers import kernel_init
from bert_jax.models.packed_rows import EncoderInputs

# The constant of the cubic kernel, of PyTorch and OpenCV; that of `jax.image.resize` is -0.5.
_CUBIC = -0.75


class PatchEmbeddings(nn.Module):
    """A linear layer on each patch, after [CLS] and perhaps a distillation token; plus positions.

    All parameters have the axes of transformers' tensors: a convolution's kernel is [D, channels,
    patch height, patch width]. Patches do not overlap, so that it is a linear layer.

    Attributes:
        config: architecture of the model.
        execution: how it is computed.
    """

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self, pixel_values: jax.Array, indices: jax.Array, *, deterministic: bool
    ) -> jax.Array:
        """Float32 [B, height, width, channels] → [B, T, D]; patches row by row.

        Images of another size than `image_size` have interpolated positions. Pixels beyond the
        last whole patch of a row or column are not read.

        Args:
            pixel_values: the images.
            indices: int32 [B, T], index of each token in the batch, for the dropout masks.
            deterministic: False for training, with dropout.
        """
        config, images = self.config, self.config.head_options(ImageOptions)
        width, init = config.hidden_size, kernel_init(config)
        projection = _Projection(config, self.execution, name="patches")
        hidden = projection(pixel_values).astype(jnp.float32)
        leading = [self.param("cls_token", init, (1, 1, width))]
        if images.has_distillation_token:
            leading.append(self.param("distillation_token", init, (1, 1, width)))
        before = jnp.concatenate(leading, axis=1)
        before = jnp.broadcast_to(before, (len(hidden), *before.shape[1:]))
        hidden = jnp.concatenate([before, hidden], axis=1)
        shape = (1, images.num_tokens(images.pixels), width)
        table = self.param("position_embeddings", init, shape)
        hidden += interpolated_positions(table, images, pixel_values.shape[1:3])
        hidden = hidden.astype(self.execution.dtype)
        drop = Dropout(config.hidden_dropout_prob)
        return drop(hidden, indices, deterministic=deterministic)


class _Projection(nn.Module):
    """The linear layer on patches."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(self, pixel_values: jax.Array) -> jax.Array:
        """[B, height, width, channels] → [B, patches, D]."""
        config, images = self.config, self.config.head_options(ImageOptions)
        (height, width), channels = images.patch, images.num_channels
        rows, columns = images.grid(pixel_values.shape[1:3])
        kernel = self.param(
            "kernel", kernel_init(config), (config.hidden_size, channels, height, width)
        )
        bias = self.param("bias", nn.initializers.zeros, (config.hidden_size,))
        whole = pixel_values[:, : rows * height, : columns * width]
        split = whole.reshape(len(whole), rows, height, columns, width, channels)
        patches = split.swapaxes(2, 3).reshape(len(whole), -1, height, width, channels)
        patches = patches.astype(self.execution.dtype)
        return affine(3, patches, kernel.transpose(2, 3, 1, 0), bias)


def interpolated_positions(
    table: jax.Array, images: ImageOptions, pixels: tuple[int, ...]
) -> jax.Array:
    """The position table for images of another size: [1, S, D] → [1, T, D].

    Cubic interpolation over the grid of patches, as `interpolate_pos_encoding` of transformers,
    which the size of the images asks for here.

    Args:
        table: positions of [CLS] (and the distillation token), then of the patches, row by row.
        images: the images that the table is for.
        pixels: height and width of the images.
    """
    old, new = images.grid(images.pixels), images.grid(pixels)
    if old == new:
        return table
    leading, width = images.num_leading_tokens, table.shape[-1]
    grid = table[0, leading:].reshape(*old, width)
    matrices = [cubic_interpolation(*sizes) for sizes in zip(old, new, strict=True)]
    precision = jax.lax.Precision.HIGHEST
    grid = jnp.einsum("ai,bj,ijd->abd", *matrices, grid, precision=precision)
    return jnp.concatenate([table[:, :leading], grid.reshape(1, -1, width)], axis=1)


def cubic_interpolation(old: int, new: int) -> np.ndarray:
    """The matrix that resizes `old` samples to `new` ones: float32 [new, old].

    As PyTorch's `interpolate(mode="bicubic", align_corners=False)` along one axis: centres of
    samples are at halves, the first and the last sample go on beyond the ends, and nothing is
    averaged where there are fewer samples after than before.
    """
    matrix = np.zeros((new, old))
    for row in range(new):
        position = (row + 0.5) * old / new - 0.5
        first = int(np.floor(position)) - 1
        for sample in range(first, first + 4):
            weight = _cubic_kernel(abs(position - sample))
            matrix[row, min(max(sample, 0), old - 1)] += weight
    return matrix.astype(np.float32)


def _cubic_kernel(distance: float) -> float:
    """The weight of a sample (Keys, 1981, equation 15)."""
    if distance <= 1:
        return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    return _CUBIC * (((distance - 5) * distance + 8) * distance - 4) if distance < 2 else 0.0


def checked_images(inputs: EncoderInputs, config: EncoderConfig) -> jax.Array:
    """The `pixel_values` of a model that reads images, float32 [B, height, width, channels].

    Raises:
        UserError: there are none, they have another form, or there are arrays of tokens: all rows
            of images have one length.
    """
    given = [name for name, array in vars(inputs).items() if array is not None]
    pixels, images = inputs.pixel_values, config.head_options(ImageOptions)
    if refused := sorted({*given} - {"pixel_values", "row_indices"}):
        raise UserError(
            f"the model reads images, whose rows have one length: leave out {', '.join(refused)}, "
            "and do not pack rows"
        )
    channels = images.num_channels
    if pixels is None or pixels.ndim != 4 or pixels.shape[-1] != channels:
        shape = "missing" if pixels is None else f"of shape {pixels.shape}"
        raise UserError(
            f"pixel_values are {shape}; this model reads images [batch, height, width, {channels}]"
        )
    if min(images.grid(pixels.shape[1:3])) < 1:
        height, width = images.patch
        raise UserError(
            f"an image of {pixels.shape[1]} × {pixels.shape[2]} pixels has no patch of "
            f"{height} × {width}; give larger images"
        )
    return pixels
