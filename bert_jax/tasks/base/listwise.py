"""Losses that compare the scores of a query's documents with their grades: listwise and pairwise.

A loss takes scores and grades, float32 [B, K], and which of the K documents exist, bool [B, K]. It
returns the sum of its terms for each query, float32 [B]; `ListLoss.count` has their number, so that
the terms of a whole batch have the same weight. Source: sentence-transformers 6.2,
cross_encoder/losses/ (list_net.py, plist_mle.py, lambda_loss.py, rank_net.py).
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from bert_jax.models.attention_inputs import MASK_VALUE

# The factor of the weights of NDCG-Loss2 beside LambdaRank's, μ in section 6.2 of the paper.
_NDCG_FACTOR = 10.0
# 2 to a greater power is no float32.
_MOST_PLACES = 127


def list_net(scores: jax.Array, grades: jax.Array, exists: jax.Array) -> jax.Array:
    """Cross-entropy of the softmax of the scores against the softmax of the grades.

    Cao et al., 2007, "Learning to Rank: From Pairwise Approach to Listwise Approach", section 4.2.
    """
    targets = jax.nn.softmax(jnp.where(exists, grades, MASK_VALUE))
    return optax.softmax_cross_entropy(jnp.where(exists, scores, MASK_VALUE), targets)


def list_mle(
    scores: jax.Array, grades: jax.Array, exists: jax.Array, *, by_position: bool = False
) -> jax.Array:
    """Negative log-likelihood of the order of the grades in the model of Plackett and Luce.

    Documents with equal grades stay in the order of the example. With `by_position`, the
    document in place p of n has the weight 2^(n - p) - 1, and the weights of a query add up to 1
    (Lan et al., 2014, "Position-Aware ListMLE").
    """
    order = jnp.argsort(-jnp.where(exists, grades, -jnp.inf), axis=1)  # BK, padding last
    scores, exists = (jnp.take_along_axis(array, order, axis=1) for array in (scores, exists))
    remaining = jnp.where(exists, scores, MASK_VALUE)
    likelihoods = scores - jax.lax.cumlogsumexp(remaining, axis=1, reverse=True)
    if by_position:
        count = exists.sum(axis=1, keepdims=True)
        scale = jnp.maximum(count - _MOST_PLACES, 0)
        places = count - jnp.arange(1, scores.shape[1] + 1)
        weights = jnp.where(exists, jnp.exp2(places - scale) - jnp.exp2(-scale), 0)
        likelihoods *= weights / (weights.sum(axis=1, keepdims=True) + 1e-10)
    return -jnp.where(exists, likelihoods, 0).sum(axis=1)


def rank_net(scores: jax.Array, grades: jax.Array, exists: jax.Array) -> jax.Array:
    """-log2 sigmoid(s_i - s_j), summed over all pairs of documents with grade i > grade j.

    Burges et al., 2005, "Learning to Rank using Gradient Descent".
    """
    differences = scores[:, :, None] - scores[:, None, :]
    losses = -jax.nn.log_sigmoid(differences) / math.log(2)
    return jnp.where(_pairs(grades, exists), losses, 0).sum(axis=(1, 2))


def lambda_loss(scores: jax.Array, grades: jax.Array, exists: jax.Array) -> jax.Array:
    """The terms of `rank_net` with weights: how much nDCG changes if the two documents swap places.

    NDCG-Loss2++ of Wang et al., 2018, "The LambdaLoss Framework for Ranking Metric Optimization",
    section 6.2. The gain of a grade g is 2^g - 1.
    """
    places = 1 + jnp.argsort(jnp.argsort(-jnp.where(exists, scores, -jnp.inf), axis=1), axis=1)
    gains = jnp.where(exists, jnp.exp2(jnp.maximum(grades, 0)) - 1, 0)
    discounts = 1 / jnp.log2(1.0 + jnp.arange(1, scores.shape[1] + 1))  # K, of place 1, 2, …
    ideal = (-jnp.sort(-gains, axis=1) * discounts).sum(axis=1, keepdims=True)
    gains /= jnp.maximum(ideal, 1e-10)
    distances = jnp.abs(places[:, :, None] - places[:, None, :])  # BKK
    steps = jnp.concatenate([jnp.zeros(1), discounts[:-1] - discounts[1:]])  # by distance
    discount_gaps = jnp.abs(discounts[places - 1][:, :, None] - discounts[places - 1][:, None, :])
    weights = _NDCG_FACTOR * steps[distances] + discount_gaps
    weights *= jnp.abs(gains[:, :, None] - gains[:, None, :])
    differences = scores[:, :, None] - scores[:, None, :]
    losses = -weights * jax.nn.log_sigmoid(differences) / math.log(2)
    return jnp.where(_pairs(grades, exists), losses, 0).sum(axis=(1, 2))


def _pairs(grades: jax.Array, exists: jax.Array) -> jax.Array:
    """Whether document i has a higher grade than document j, bool [B, K, K]."""
    higher = grades[:, :, None] > grades[:, None, :]
    return higher & exists[:, :, None] & exists[:, None, :]


@dataclasses.dataclass(frozen=True)
class ListLoss:
    """A loss and the number of its terms.

    Attributes:
        losses: scores, grades and `exists` → the sum of the terms of each query, float32 [B].
        count: grades and `exists` → their number, [B].
    """

    losses: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    count: Callable[[jax.Array, jax.Array], jax.Array]


def _lists(grades: jax.Array, exists: jax.Array) -> jax.Array:
    return exists.any(axis=1)


def _number_of_pairs(grades: jax.Array, exists: jax.Array) -> jax.Array:
    return _pairs(grades, exists).sum(axis=(1, 2))


LIST_LOSSES = {
    "list_net": ListLoss(list_net, _lists),
    "list_mle": ListLoss(list_mle, _lists),
    "p_list_mle": ListLoss(functools.partial(list_mle, by_position=True), _lists),
    "rank_net": ListLoss(rank_net, _number_of_pairs),
    "lambda_loss": ListLoss(lambda_loss, _number_of_pairs),
}
"""By the names of sentence-transformers."""
