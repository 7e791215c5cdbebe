"""How well scores tell similar pairs from others, and find the pair of a text."""

import numpy as np

# Rows of a matrix of scores that are compared at once: of 10,000 texts, 40 MB.
_ROWS = 1024


def average_precision(similar: np.ndarray, scores: np.ndarray) -> float:
    """The mean precision over the similar pairs, as `sklearn.metrics.average_precision_score`.

    Args:
        similar: bool [n].
        scores: numbers [n], higher for what is more similar.

    Returns:
        From 0 to 1; 0 where nothing is similar.
    """
    found, told = _cumulated(similar, scores)
    if not found[-1]:
        return 0.0
    gained = np.diff(found)
    precision = found[1:] / told[1:]
    return float((gained * precision).sum() / found[-1])


def best_accuracy(similar: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """The accuracy at the threshold that is best for it.

    Args:
        similar: bool [n], n ≥ 1.
        scores: numbers [n].

    Returns:
        The accuracy, and a threshold: pairs with a score of at least this are called similar. It
        lies in the middle between two scores, or where all pairs are the same, at the outermost.
    """
    found, told = _cumulated(similar, scores)
    # Called similar and right, and called different and right.
    right = found + (len(similar) - told) - (found[-1] - found)
    best = int(right.argmax())
    distinct = np.unique(np.asarray(scores, np.float64))[::-1]
    if best == 0:
        threshold = np.nextafter(distinct[0], np.inf)
    elif best == len(distinct):
        threshold = distinct[-1]
    else:
        threshold = (distinct[best - 1] + distinct[best]) / 2
    return float(right[best] / len(similar)), float(threshold)


def reciprocal_ranks(vectors: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """One over the rank that the second text of each pair has for the first, among all seconds.

    Seconds with the same score count as better, so that a model which says the same of everything
    finds nothing. Equal texts do not compete with each other.

    Args:
        vectors: float [n, 2, D], of length 1.
        texts: int [n, 2], equal numbers for equal texts.

    Returns:
        float64 [n], 1 for what is found at once.
    """
    ranks = np.empty(len(vectors))
    for start in range(0, len(vectors), _ROWS):
        rows = slice(start, start + _ROWS)
        scores = vectors[rows, 0] @ vectors[:, 1].T  # rows × n
        own = np.arange(len(vectors))[rows, None]
        right = np.take_along_axis(scores, own, axis=1)
        same = (texts[rows, None, :] == texts[None, :, :]).any(axis=-1)
        same |= texts[rows, None, 0] == texts[None, :, 1]
        ranks[rows] = 1 + ((scores >= right) & ~same).sum(axis=1)
    return 1 / ranks


def _cumulated(similar: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Similar pairs, and all pairs, at or above each distinct score, from the highest; 0 first."""
    similar, scores = np.asarray(similar, bool), np.asarray(scores, np.float64)
    order = np.argsort(-scores, kind="stable")
    last_of_equal = np.append(np.diff(scores[order]) != 0, True)
    found = np.cumsum(similar[order])[last_of_equal]
    told = np.arange(1, len(scores) + 1)[last_of_equal]
    return np.append(0, found), np.append(0, told)
