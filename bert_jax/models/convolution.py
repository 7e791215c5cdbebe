"""DeBERTa-v2's convolution, which is computed beside the first layer (`conv_kernel_size`).

Source: Hugging Face transformers, models/deberta_v2/modeling_deberta_v2.py.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from bert_jax.models.activations import ACTIVATIONS
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import Dropout
from bert_jax.models.execution import Execution
from bert_jax.models.kernels.matmul import affine
from bert_jax.models.layers import kernel_init


@struct.dataclass
class Convolution:
    """What is added to the output of the first layer, before a LayerNorm.

    Attributes:
        hidden: [B, T, D].
        scale: of the LayerNorm, float32 [D].
        bias: of the LayerNorm, float32 [D].
        epsilon: added to the variance.
    """

    hidden: jax.Array
    scale: jax.Array
    bias: jax.Array
    epsilon: float = struct.field(pytree_node=False)

    def added_to(self, hidden: jax.Array, is_visible: jax.Array) -> jax.Array:
        """The output of the first layer with it, [B, T, D]; 0 where bool [B, T] is false."""
        total = (hidden + self.hidden).astype(jnp.float32)
        centred = total - total.mean(axis=-1, keepdims=True)
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + self.epsilon) * self.scale + self.bias
        return jnp.where(is_visible[..., None], normal, 0).astype(hidden.dtype)


class ConvolutionLayer(nn.Module):
    """A linear layer on each token and those of its text near it."""

    config: EncoderConfig
    execution: Execution

    @nn.compact
    def __call__(
        self, hidden: jax.Array, text_ids: jax.Array, indices: jax.Array, deterministic: bool
    ) -> Convolution:
        """Convolves the input of the first layer.

        Args:
            hidden: [B, T, D], 0 for padding.
            text_ids: int32 [B, T], the text of its row that a token belongs to; 0: padding.
            indices: int32 [B, T], index of each token in the batch, for the dropout masks.
            deterministic: False for training, with dropout.
        """
        config = self.config
        reach = config.conv_kernel_size // 2
        ids = jnp.pad(text_ids, ((0, 0), (reach, reach)))
        padded = jnp.pad(hidden, ((0, 0), (reach, reach), (0, 0)))

        def shifted(start: int) -> jax.Array:
            end = start + hidden.shape[1]
            is_of_text = ids[:, start:end] == text_ids
            return jnp.where(is_of_text[..., None], padded[:, start:end], 0)

        near = jnp.stack([shifted(start) for start in range(config.conv_kernel_size)], axis=-1)
        width = config.hidden_size
        # The axes of PyTorch's: output, input, position.
        kernel = self.param("kernel", kernel_init(config), (width, *near.shape[2:]))
        bias = self.param("bias", nn.initializers.zeros, (width,))
        convolved = affine(2, near, kernel.transpose(1, 2, 0), bias)  # BTD
        convolved = jnp.where((text_ids > 0)[..., None], convolved, 0)
        drop = Dropout(config.hidden_dropout_prob)
        convolved = drop(convolved, indices, deterministic=deterministic)
        convolved = ACTIVATIONS[config.conv_act](convolved)
        scale, bias = _NormParameters(width, name="output_norm")()
        return Convolution(convolved, scale, bias, config.layer_norm_eps)


class _NormParameters(nn.Module):
    """Scale and bias of a LayerNorm that is computed inside the loop over layers."""

    width: int

    @nn.compact
    def __call__(self) -> tuple[Any, Any]:
        ones, zeros = nn.initializers.ones, nn.initializers.zeros
        return self.param("scale", ones, (self.width,)), self.param("bias", zeros, (self.width,))
