"""Scores that are no numbers are no answers."""

import numpy as np

from bert_jax.errors import NotFiniteError


def finite(scores: np.ndarray, what: str) -> np.ndarray:
    """The scores themselves.

    Args:
        scores: of a model, of any shape.
        what: they are, in the plural, for the error.

    Raises:
        NotFiniteError: one of them is NaN or infinite.
    """
    if not np.isfinite(scores).all():
        raise NotFiniteError(f"{what} are not finite; the parameters of the model are damaged")
    return scores
