"""The loss of models that predict every token of a text: decoders."""

import math

import jax
import jax.numpy as jnp

from bert_jax.tasks.base.task import classification_sums, weighted_sums


def smoothed_cross_entropy(
    logits: jax.Array, labels: jax.Array, smoothing: float, vocab_size: int
) -> jax.Array:
    """The cross-entropy of smoothed labels less their entropy, float32 [...]: KL(q ‖ p) ≥ 0.

    A smoothed label q has 1 - ε for the token and ε / (V - 1) for each other one, so the prediction
    p = q has the loss 0. Without smoothing it is the usual cross-entropy. Sources: Szegedy et al.,
    2016 (https://arxiv.org/abs/1512.00567), section 7; the example `wmt` of Flax.

    Args:
        logits: float32 [..., ≥ V]; columns of padding (`Execution.pad_vocab_to_multiple_of`) after
            those of the V tokens have no share of the labels.
        labels: int [...].
        smoothing: ε in [0, 1).
        vocab_size: V.
    """
    label_logit = jnp.take_along_axis(logits, labels[..., None], axis=-1).squeeze(-1)
    normaliser = jax.nn.logsumexp(logits, axis=-1)
    if not smoothing:
        return normaliser - label_logit
    # -Σ q log p, where log p = logit - log Σ exp, and Σ q = 1: no array of smoothed labels.
    other = smoothing / (vocab_size - 1)
    is_token = jnp.arange(logits.shape[-1]) < vocab_size
    logit_sum = jnp.where(is_token, logits, 0).sum(axis=-1)
    expected_logit = (1 - smoothing - other) * label_logit + other * logit_sum
    entropy = -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(other)
    return normaliser - expected_logit - entropy


def token_sums(
    logits: jax.Array, labels: jax.Array, weights: jax.Array, *, smoothing: float, vocab_size: int
) -> dict[str, jax.Array]:
    """Weighted sums over tokens, scalars: of the loss, of the cross-entropy, of correct tokens.

    Args:
        logits: see `smoothed_cross_entropy`, as labels, smoothing and V.
        labels: int [...].
        weights: float32 [...], 0 for padding.
        smoothing: ε; the perplexity follows from the cross-entropy.
        vocab_size: V.

    Returns:
        "loss", "cross_entropy" (without smoothing) and "accuracy".
    """
    sums = classification_sums(logits, labels, weights)
    loss = smoothed_cross_entropy(logits, labels, smoothing, vocab_size)
    return sums | {"cross_entropy": sums["loss"]} | weighted_sums(weights, {"loss": loss})


def perplexity(cross_entropy: float) -> float:
    """E to the mean cross-entropy of a token, of at most 20: beyond any vocabulary.

    The cap keeps the log of a diverging run finite.
    """
    return math.exp(min(cross_entropy, 20.0))
