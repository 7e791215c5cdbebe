"""Losses of rankings: functions of scores, which any kind of model computes.

Sources: sentence-transformers 6.2, sentence_transformer/losses/, and the papers named below.
"""

import jax
import jax.numpy as jnp
import optax

from bert_jax.models.attention_inputs import MASK_VALUE


def cross_entropy(scores: jax.Array, positives: jax.Array, is_candidate: jax.Array) -> jax.Array:
    """-log of the probability of the positive among the candidates, float32 [B].

    With the documents of all queries as candidates: multiple negatives ranking (Henderson et al.,
    2017, section 4.4), InfoNCE, the loss of DPR.

    Args:
        scores: float32 [B, M], scaled.
        positives: int32 [B], the column of each row's positive.
        is_candidate: bool [B, M]; the positive always counts.
    """
    is_positive = jnp.arange(scores.shape[1]) == positives[:, None]
    scores = jnp.where(is_positive | is_candidate, scores, MASK_VALUE)
    return optax.softmax_cross_entropy_with_integer_labels(scores, positives)


def margin_mse(scores: jax.Array, teacher: jax.Array, is_document: jax.Array) -> jax.Array:
    """((s⁺ - s⁻) - (t⁺ - t⁻))², the mean over the negatives of a query, float32 [B].

    Scores are not scaled, so the student takes over the scale of the teacher (Hofstätter et al.,
    2020, https://arxiv.org/abs/2010.02666).

    Args:
        scores: float32 [B, K], the positive first.
        teacher: scores of the teacher, float32 [B, K].
        is_document: bool [B, K], False for padding.
    """
    margins = scores[:, :1] - scores[:, 1:]
    errors = jnp.square(margins - (teacher[:, :1] - teacher[:, 1:]))
    return _mean(errors, is_document[:, 1:])


def kl_divergence(
    scores: jax.Array, teacher: jax.Array, is_document: jax.Array, temperature: float = 1.0
) -> jax.Array:
    """T² · KL(softmax(t / T) ‖ softmax(s / T)) over the documents of a query, float32 [B].

    Args:
        scores: float32 [B, K].
        teacher: scores of the teacher, float32 [B, K].
        is_document: bool [B, K], False for padding.
        temperature: T.
    """

    def log_probabilities(values: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(jnp.where(is_document, values / temperature, MASK_VALUE))

    student, target = log_probabilities(scores), log_probabilities(teacher)
    terms = jnp.where(is_document, jnp.exp(target) * (target - student), 0)
    return temperature**2 * terms.sum(axis=1)


def triplet(scores: jax.Array, is_document: jax.Array, margin: float) -> jax.Array:
    """max(0, s⁻ - s⁺ + margin), the mean over the negatives of a query, float32 [B].

    Scores that are negative distances give the usual form, max(0, d⁺ - d⁻ + margin).

    Args:
        scores: float32 [B, K], the positive first.
        is_document: bool [B, K], False for padding.
        margin: the difference above which the loss is 0.
    """
    return _mean(jax.nn.relu(scores[:, 1:] - scores[:, :1] + margin), is_document[:, 1:])


def contrastive(similarities: jax.Array, labels: jax.Array, margin: float) -> jax.Array:
    """d² / 2 of a pair that belongs together, else max(0, margin - d)² / 2; d = 1 - similarity.

    Source: Hadsell et al., 2006, "Dimensionality reduction by learning an invariant mapping".

    Args:
        similarities: cosines of pairs, float32 [...].
        labels: 1 for pairs that belong together, else 0; float32 [...].
        margin: the distance above which the loss of other pairs is 0.
    """
    distance = 1 - similarities
    apart = jax.nn.relu(margin - distance)
    return 0.5 * (labels * jnp.square(distance) + (1 - labels) * jnp.square(apart))


def cosent(scores: jax.Array, labels: jax.Array, is_pair: jax.Array) -> jax.Array:
    """log(1 + Σ exp(s_j - s_i)) over the pairs i and j with label i > label j, a scalar.

    Source: Huang et al., 2024, "CoSENT: Consistent sentence embedding via similarity ranking".

    Args:
        scores: scaled similarities of n pairs of texts, float32 [n].
        labels: float32 [n].
        is_pair: bool [n], False for padding.
    """
    counts = (labels[:, None] > labels) & is_pair[:, None] & is_pair  # nn
    differences = jnp.where(counts, scores - scores[:, None], MASK_VALUE)
    return jax.nn.logsumexp(jnp.append(differences.reshape(-1), 0))


def _mean(values: jax.Array, counts: jax.Array) -> jax.Array:
    """The mean of the values that count, by row; 0 for a row without any."""
    return jnp.where(counts, values, 0).sum(axis=1) / counts.sum(axis=1).clip(1)
