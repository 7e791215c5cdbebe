"""The weight of each class in the loss, `data.class_weights`."""

import numpy as np

from bert_jax.errors import UserError


def is_balanced(class_weights: str) -> bool:
    """Whether classes are to have equal weights; else examples have them.

    Raises:
        UserError: the key is neither "" nor "balanced".
    """
    if class_weights not in ("", "balanced"):
        raise UserError(f"data.class_weights {class_weights!r} is neither '' nor 'balanced'")
    return class_weights == "balanced"


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """int64 [C], examples of each class → the weight of such an example, float32 [C].

    The mean over all examples is 1, so that the learning rate keeps its meaning.
    """
    return (counts.sum() / np.count_nonzero(counts) / counts.clip(1)).astype(np.float32)
