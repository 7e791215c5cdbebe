"""How near predicted values are to the gold ones: STS-B's Pearson and Spearman, squared error.

A correlation with a constant does not exist; GLUE's scripts give nan there. We say 0, as Matthews'
correlation is by convention: a model that answers the same for everything is no better than chance,
and must rank below one that is, which nan does not.
"""

import numpy as np


def pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Pearson's correlation, equal to `scipy.stats.pearsonr`.

    Args:
        gold: numbers [n].
        predicted: numbers [n].

    Returns:
        From -1 to 1; 0 where either is constant or n is below 2, nan where either has a nan.
    """
    from scipy.stats import pearsonr

    gold, predicted = _as_floats(gold, predicted)
    return float(pearsonr(gold, predicted).statistic) if _vary(gold, predicted) else 0.0


def spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Spearman's rank correlation, equal to `scipy.stats.spearmanr`: ties share their mean rank.

    Args:
        gold: numbers [n].
        predicted: numbers [n].

    Returns:
        From -1 to 1; 0 where either is constant or n is below 2, nan where either has a nan.
    """
    from scipy.stats import spearmanr

    gold, predicted = _as_floats(gold, predicted)
    return float(spearmanr(gold, predicted).statistic) if _vary(gold, predicted) else 0.0


def mean_squared_error(gold: np.ndarray, predicted: np.ndarray) -> float:
    """The mean of (gold - predicted)², 0 where there is nothing.

    Args:
        gold: numbers [n].
        predicted: numbers [n].
    """
    gold, predicted = _as_floats(gold, predicted)
    return float(np.mean((gold - predicted) ** 2)) if len(gold) else 0.0


def _as_floats(gold: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 [n]: float32 would cost digits."""
    gold, predicted = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        raise ValueError(f"values of shapes {gold.shape} and {predicted.shape}, not both [n]")
    return gold, predicted


def _vary(gold: np.ndarray, predicted: np.ndarray) -> bool:
    return len(gold) > 1 and all(bool(np.any(x != x[0])) for x in (gold, predicted))
