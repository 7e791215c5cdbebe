"""Scores of predicted numbers and of similarities of pairs.

A correlation with a constant is undefined; GLUE's scripts return nan. This module returns 0, the
convention for Matthews' correlation: a model with one answer for everything is no better than
chance, and must rank below one that is, which nan does not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NO_TOKENS = -1e9
"""The score of a document without vectors, as in sentence-transformers."""

# Rows of a matrix of scores that are compared at once, 40 MB for 10,000 texts; or documents, 100 MB
# for 200 vectors of width 128.
_ROWS = 1024


def pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation, equal to `scipy.stats.pearsonr`.

    Args:
        gold: numbers [n].
        predicted: numbers [n].

    Returns:
        From -1 to 1; 0 if either is constant or n is below 2, nan if either contains nan.
    """
    from scipy.stats import pearsonr

    return _correlation(pearsonr, gold, predicted)


def spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's rank correlation, equal to `scipy.stats.spearmanr`: ties share their mean rank.

    Args:
        gold: numbers [n].
        predicted: numbers [n].

    Returns:
        From -1 to 1; 0 if either is constant or n is below 2, nan if either contains nan.
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, gold, predicted)


def mean_squared_error(gold: np.ndarray, predicted: np.ndarray) -> float:
    """The mean of (gold - predicted)², 0 for n = 0.

    Args:
        gold: numbers [n].
        predicted: numbers [n].
    """
    differences = np.asarray(gold, np.float64) - np.asarray(predicted, np.float64)
    return float(np.mean(differences**2)) if len(gold) else 0.0


def similarities(left: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    """How similar every vector is to every other, as in sentence-transformers.

    Args:
        left: float32 [n, X].
        right: float32 [M, X].
        kind: "cosine", from -1 to 1; "dot"; "euclidean" or "manhattan", the distance with a minus.

    Returns:
        float32 [n, M].
    """
    if kind in ("euclidean", "manhattan"):
        from scipy.spatial.distance import cdist

        metric = {"manhattan": "cityblock"}.get(kind, kind)
        return -cdist(left, right, metric).astype(np.float32)
    if kind == "dot":
        return left @ right.T
    return np.clip(units(left) @ units(right).T, -1, 1)  # rounding can make it 1.0000001


def similarity_of_pair(vectors: np.ndarray, kind: str = "cosine") -> float:
    """How similar two vectors are, [2, X], in double precision; see `similarities`."""
    first, second = vectors.astype(np.float64)
    match kind:
        case "dot":
            return float(first @ second)
        case "euclidean":
            return -float(np.linalg.norm(first - second))
        case "manhattan":
            return -float(np.abs(first - second).sum())
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.clip(first @ second / norms, -1, 1)) if norms else 0.0


def maxsim(
    queries: Sequence[np.ndarray], documents: Sequence[np.ndarray], *, mean: bool = False
) -> np.ndarray:
    """Late interaction: Σ over the vectors of a query of the greatest dot product in a document.

    Args:
        queries: n arrays, float32 [T, X], each with its own T.
        documents: M arrays, float32 [S, X], each with its own S.
        mean: whether the sum is divided by T.

    Returns:
        Float32 [n, M]; `NO_TOKENS` for a document without vectors.
    """
    scores = np.empty((len(queries), len(documents)), np.float32)
    for start in range(0, len(documents), _ROWS):
        block = documents[start : start + _ROWS]
        counts = np.array([len(document) for document in block], np.int64)
        scores[:, start : start + _ROWS] = joined_maxsim(
            queries, np.concatenate(block), counts, mean=mean
        )
    return scores


def joined_maxsim(
    queries: Sequence[np.ndarray], vectors: np.ndarray, counts: np.ndarray, *, mean: bool = False
) -> np.ndarray:
    """`maxsim` with documents whose vectors are in one array, one document after the other.

    Args:
        queries: n arrays, float32 [T, X].
        vectors: float32 [N, X].
        counts: int [M], the number of vectors of each document; their sum is N.
        mean: see `maxsim`.

    Returns:
        Float32 [n, M].
    """
    scores = np.full((len(queries), len(counts)), NO_TOKENS, np.float32)
    starts, has_any = counts.cumsum() - counts, counts > 0
    for row, query in zip(scores, queries, strict=True):
        if has_any.any():
            products = query @ vectors.T  # TN
            row[has_any] = np.maximum.reduceat(products, starts[has_any], axis=1).sum(axis=0)
    if mean:
        scores /= np.maximum([[len(query)] for query in queries], 1)
    return scores


def average_precision(similar: np.ndarray, scores: np.ndarray) -> float:
    """The mean precision over the similar pairs, as `sklearn.metrics.average_precision_score`.

    scikit-learn's function is not used: it adds in another order, which changes the last digit.

    Args:
        similar: bool [n].
        scores: numbers [n], higher for more similar pairs.

    Returns:
        From 0 to 1; 0 if no pair is similar.
    """
    num_similar, num_pairs = _cumulated(similar, scores)
    if not num_similar[-1]:
        return 0.0
    precision = num_similar[1:] / num_pairs[1:]
    return float((np.diff(num_similar) * precision).sum() / num_similar[-1])


def best_accuracy(similar: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """The highest accuracy over all thresholds.

    Args:
        similar: bool [n], n ≥ 1.
        scores: numbers [n].

    Returns:
        The accuracy, and a threshold: pairs with at least this score are called similar. It lies in
        the middle between two scores, or, if all pairs are called the same, at the outermost.
    """
    num_similar, num_pairs = _cumulated(similar, scores)
    # Correctly called similar, and correctly called different.
    correct = num_similar + (len(similar) - num_pairs) - (num_similar[-1] - num_similar)
    best = int(correct.argmax())
    distinct = np.unique(np.asarray(scores, np.float64))[::-1]
    if best == 0:
        threshold = np.nextafter(distinct[0], np.inf)
    elif best == len(distinct):
        threshold = distinct[-1]
    else:
        threshold = (distinct[best - 1] + distinct[best]) / 2
        if threshold <= distinct[best]:  # between two neighbouring floats there is no other
            threshold = distinct[best - 1]
    return float(correct[best] / len(similar)), float(threshold)


def reciprocal_ranks(vectors: np.ndarray, texts: np.ndarray, kind: str = "dot") -> np.ndarray:
    """The reciprocal rank of each pair's second text for its first, among all second texts.

    Second texts with the same score count as better, so that a model with equal scores for
    everything ranks every text last. Equal texts do not compete with each other.

    Args:
        vectors: float [n, 2, X].
        texts: int [n, 2], equal numbers for equal texts.
        kind: similarity that ranks, see `similarities`.

    Returns:
        float64 [n], 1 if the pair is ranked first.
    """
    ranks = np.empty(len(vectors))
    for start in range(0, len(vectors), _ROWS):
        rows = slice(start, start + _ROWS)
        scores = similarities(vectors[rows, 0], vectors[:, 1], kind)  # rows × n
        own = np.arange(len(vectors))[rows, None]
        own_scores = np.take_along_axis(scores, own, axis=1)
        ranks[rows] = 1 + ((scores >= own_scores) & ~are_related(texts[rows], texts)).sum(axis=1)
    return 1 / ranks


def are_related(pairs: Any, others: Any) -> Any:
    """Whether the second text of each other pair is not a wrong answer for the first of a pair.

    It equals the first or the second text of the pair, or belongs to an equal first text.

    Args:
        pairs: int [B, 2], equal numbers for equal texts; NumPy or JAX.
        others: int [n, 2].

    Returns:
        bool [B, n].
    """
    have_equal_text = (pairs[:, None] == others[None]).any(axis=-1)
    return have_equal_text | (pairs[:, None, 0] == others[None, :, 1])


def units(vectors: np.ndarray) -> np.ndarray:
    """Vectors, float [..., X], scaled to length 1; zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _cumulated(similar: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Similar pairs, and all pairs, at or above each distinct score, from the highest; 0 first."""
    similar, scores = np.asarray(similar, bool), np.asarray(scores, np.float64)
    order = np.argsort(-scores, kind="stable")
    last_of_equal = np.append(np.diff(scores[order]) != 0, True)[: len(scores)]
    num_similar = np.cumsum(similar[order])[last_of_equal]
    num_pairs = np.arange(1, len(scores) + 1)[last_of_equal]
    return np.append(0, num_similar), np.append(0, num_pairs)


def _correlation(function: Callable[..., Any], gold: np.ndarray, predicted: np.ndarray) -> float:
    # float32 would lose digits.
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    varies = len(gold) > 1 and all(bool(np.any(x != x[0])) for x in (gold, predicted))
    return float(function(gold, predicted).statistic) if varies else 0.0
