"""Rotary positions: queries and keys are turned by angles that grow with the position.

The product of a turned query and a turned key depends on their distance alone. Source: Su et al.,
2021 (https://arxiv.org/abs/2104.09864), section 3.2, with the two values of a pair H / 2 apart, as
in Hugging Face transformers.

A factor s > 1 stretches them for texts s times as long, of any length alike ("NTK", GTE): the base
is s times as large, and all angles are divided by s^(2 / H). Source: Alibaba-NLP/new-impl,
modeling.py, NTKScalingRotaryEmbedding.
"""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.config import EncoderConfig


def rotations(config: EncoderConfig, positions: jax.Array) -> jax.Array:
    """Cosines and sines of the angles p · base^(-2j / H), for positions p and j < H / 2.

    Int32 [B, T] → float32 [B, K, 2, T, H / 2]: of the base of global layers, and, with K = 2, of
    that of local layers, where there are any.
    """
    exponents = -np.arange(0, config.head_dim, 2) / config.head_dim
    bases = np.array([[config.global_rope_theta], [config.local_rope_theta]])
    bases = bases[: 1 + config.has_rotations_by_layer]
    factor = config.rope_factor
    frequencies = (factor * bases) ** exponents / factor ** (2 / config.head_dim)  # KJ
    angles = positions[:, None, :, None] * frequencies[:, None].astype(np.float32)  # BKTJ
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=2)


def rotated(heads: jax.Array, rotations: jax.Array, is_global: jax.Array | None) -> jax.Array:
    """Queries or keys [B, N, T, H], turned by the `rotations` of a layer.

    `is_global`, bool [], is whether the layer is global; None: all are.
    """
    layer_rotations = rotations[:, :1]
    if is_global is not None:
        layer_rotations = jnp.where(is_global, layer_rotations, rotations[:, 1:])
    cosine, sine = layer_rotations[:, :, 0], layer_rotations[:, :, 1]  # B1TJ
    first, second = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return jnp.concatenate(turned, axis=-1).astype(heads.dtype)
