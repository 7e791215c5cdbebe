"""The losses that make the vectors of two texts comparable, a number for each pair.

Source: Sentence-BERT (Reimers and Gurevych, 2019), section 3, as in the library
sentence-transformers. The two vectors are called u and v.
"""

import jax
import jax.numpy as jnp
import optax

from bert_jax.models.layers import MASK_VALUE, l2_normalize


def cosines(u: jax.Array, v: jax.Array) -> jax.Array:
    """The cosine of each pair of vectors: float32 [B, D] twice → [B]; 0 for a zero vector."""
    return (l2_normalize(u) * l2_normalize(v)).sum(axis=-1)


def cosine_losses(vectors: jax.Array, similarity: jax.Array) -> jax.Array:
    """The squared difference of the cosine from a given similarity (the regression objective).

    Args:
        vectors: float32 [B, 2, D].
        similarity: float32 [B], what the cosine should be.
    """
    return jnp.square(cosines(vectors[:, 0], vectors[:, 1]) - similarity)


def contrastive_losses(vectors: jax.Array, similar: jax.Array, margin: float) -> jax.Array:
    """Similar pairs are drawn together, others are pushed apart up to a margin.

    With the distance d = 1 - cosine: d² / 2 for a similar pair, else max(0, margin - d)² / 2
    (Hadsell et al., 2006, "Dimensionality reduction by learning an invariant mapping").

    Args:
        vectors: float32 [B, 2, D].
        similar: float32 [B], 1 or 0.
        margin: the distance that is far enough.
    """
    distance = 1 - cosines(vectors[:, 0], vectors[:, 1])
    apart = jax.nn.relu(margin - distance)
    return 0.5 * (similar * jnp.square(distance) + (1 - similar) * jnp.square(apart))


def in_batch_losses(
    vectors: jax.Array, texts: jax.Array, is_pair: jax.Array, scale: float
) -> jax.Array:
    """Of all second texts of a batch, each first text is to find its own (multiple negatives).

    Cross-entropy over scale × cosine (Henderson et al., 2017, section 4.4). What is no wrong answer
    is left out: a second text that is the same as the right one or as the first text, or that
    belongs to the same first text.

    Args:
        vectors: float32 [B, 2, D].
        texts: int32 [B, 2], equal numbers for equal texts.
        is_pair: bool [B], False for rows that fill up the batch.
        scale: one over the temperature.
    """
    first, second = l2_normalize(vectors[:, 0]), l2_normalize(vectors[:, 1])
    scores = scale * jnp.einsum("BD,SD->BS", first, second)  # B × B
    same = (texts[:, None, :] == texts[None, :, :]).any(axis=-1)
    same |= texts[:, None, 0] == texts[None, :, 1]
    own = jnp.eye(len(texts), dtype=bool)
    wrong = ~same & is_pair[None, :]
    scores = jnp.where(own | wrong, scores, MASK_VALUE)
    return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.arange(len(texts)))
