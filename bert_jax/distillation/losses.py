"""Losses of a student against its teacher, one value for each text, word or token.

Sources: Hinton et al. (2015), https://arxiv.org/abs/1503.02531, for scores; DistilBERT
(https://arxiv.org/abs/1910.01108), TinyBERT (https://arxiv.org/abs/1909.10351) and MobileBERT
(https://arxiv.org/abs/2004.02984) for hidden states and attention weights; MiniLM
(https://arxiv.org/abs/2002.10957) for attention weights and value relations.
"""

import jax
import jax.numpy as jnp
import optax

from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.layers import cosines


def soft_losses(kind: str, student: jax.Array, teacher: jax.Array, temperature: float) -> jax.Array:
    """The loss of a student's scores.

    Args:
        kind: `Distillable.score_kind`; the temperature counts for "classes" and "labels".
        student: float32 [..., C].
        teacher: float32 [..., C]; vectors may have another width.
        temperature: divides scores; `MASK_VALUE`, the lowest finite number, stays finite below 1.

    Returns:
        float32 [...], of vectors [B].
    """
    if kind in ("classes", "labels"):
        compare = divergence if kind == "classes" else binary_divergence
        softened = (jnp.maximum(each / temperature, MASK_VALUE) for each in (student, teacher))
        return compare(*softened) * temperature**2
    if kind == "values" or student.shape == teacher.shape:
        return jnp.square(student - teacher).mean(axis=-1)
    own, expected = (cosines(*jnp.unstack(each, axis=1)) for each in (student, teacher))
    return jnp.square(own - expected)


HARD_KINDS = ("classes", "labels")
"""The kinds of scores by which a teacher decides."""


def hard_losses(kind: str, student: jax.Array, teacher: jax.Array) -> jax.Array:
    """The loss of a student's scores against the decisions of its teacher: [..., C] → [...].

    Args:
        kind: one of `HARD_KINDS`: the teacher's best class is the label, or all classes above 0.
        student: float32 [..., C].
        teacher: float32 [..., C].
    """
    if kind == "classes":
        return optax.softmax_cross_entropy_with_integer_labels(student, teacher.argmax(axis=-1))
    return optax.sigmoid_binary_cross_entropy(student, teacher > 0).mean(axis=-1)


def divergence(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Kullback-Leibler divergence of softmax(student) from softmax(teacher): [..., C] → [...]."""
    expected, own = jax.nn.log_softmax(teacher), jax.nn.log_softmax(student)
    return (jnp.exp(expected) * (expected - own)).sum(axis=-1)


def binary_divergence(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """The divergence of C sigmoids, the mean over C: [..., C] → [...]."""
    yes, no = (
        jnp.exp(jax.nn.log_sigmoid(sign * teacher))
        * (jax.nn.log_sigmoid(sign * teacher) - jax.nn.log_sigmoid(sign * student))
        for sign in (1, -1)
    )
    return (yes + no).mean(axis=-1)


def hidden_losses(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """The mean squared difference for each token, the mean over layers: [L, B, T, D] → [B, T]."""
    return jnp.square(student - teacher).mean(axis=(0, -1))


def attention_losses(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Divergence of each token's attention weights or value relations: mean of layers and heads.

    Args:
        student: float32 [L, B, N, T, S], 0 for tokens that are not seen.
        teacher: the same for the teacher.

    Returns:
        float32 [B, T].
    """
    tiny = jnp.finfo(student.dtype).tiny  # a weight of 0 has no logarithm, and counts nothing
    ratio = jnp.log(teacher.clip(tiny)) - jnp.log(student.clip(tiny))
    return (teacher * ratio).sum(axis=-1).mean(axis=(0, 2))
