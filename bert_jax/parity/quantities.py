"""What both sides compute, and the numbers that say how far apart they are."""

import dataclasses
from collections.abc import Mapping

import numpy as np

HIDDEN_STATES, LOGITS, LOSS, GRADIENT = "hidden states", "logits", "loss", "gradient"

# The largest absolute difference that is rounding. Gradients: relative to their scale, see
# `gradient_scales`. Float32 sums of another order differ by a few 1e-6 in a model of base size.
TOLERANCES: Mapping[str, float] = {HIDDEN_STATES: 2e-5, LOGITS: 1e-4, LOSS: 1e-4, GRADIENT: 1e-4}


@dataclasses.dataclass(frozen=True)
class Computed:
    """What one side computed from one input, float32, or float64 if that was asked for.

    Attributes:
        hidden_states: [L + 1, rows, T, D], the embeddings and the output of each layer.
        logits: by Hugging Face's names; rows are those of the input, not of the encoder.
        losses: by name, as in `heads.HEADS`.
        gradients: of the last of the losses, by the names of `names.huggingface.TABLE`.
    """

    hidden_states: np.ndarray
    logits: Mapping[str, np.ndarray]
    losses: Mapping[str, float]
    gradients: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far apart the two sides are in one quantity, for one input.

    Attributes:
        quantity: `HIDDEN_STATES`, `LOGITS`, `LOSS` or `GRADIENT`.
        name: "embeddings", "layer 3"; the logits' or the loss's name; a tensor's name.
        input_name: of the input.
        maximum: largest absolute difference; not a number if one side is not.
        mean: mean absolute difference.
        count: of numbers that were compared.
        judged: what must not be above the tolerance: of gradients `maximum` over their scale, of
            all others `maximum`.
    """

    quantity: str
    name: str
    input_name: str
    maximum: float
    mean: float
    count: int
    judged: float

    @property
    def tolerance(self) -> float:
        """The largest `judged` that is rounding."""
        return TOLERANCES[self.quantity]

    @property
    def agrees(self) -> bool:
        """Whether the difference is rounding."""
        return self.judged <= self.tolerance  # false for NaN


def difference(
    quantity: str,
    name: str,
    input_name: str,
    found: np.ndarray | float,
    expected: np.ndarray | float,
    scale: float = 1.0,
) -> Difference:
    """Compares two arrays of one shape; `scale` divides what is judged."""
    apart = np.abs(np.subtract(found, expected, dtype=np.float64))
    maximum = float(apart.max())
    return Difference(
        quantity=quantity,
        name=name,
        input_name=input_name,
        maximum=maximum,
        mean=float(apart.mean()),
        count=apart.size,
        judged=maximum / scale if maximum else 0.0,
    )


def gradient_scales(gradients: Mapping[str, np.ndarray]) -> dict[str, float]:
    """What the difference of each gradient is measured by.

    It is the largest absolute value of the gradients of the reference's weight and bias of one
    dense map or LayerNorm. Not of the tensor alone: softmax does not see a constant, so the true
    gradients of some biases are zero (that of every key, of the span head, of the score of a
    choice), and what is computed for them is rounding.

    Nor is it ever less than a millionth of the largest gradient of the model, which is about what
    float32 resolves.
    """
    largest: dict[str, float] = {}
    for name, gradient in gradients.items():
        part = name.rpartition(".")[0]
        largest[part] = max(largest.get(part, 0.0), float(np.abs(gradient).max()))
    least = max(1e-6 * max(largest.values()), float(np.finfo(np.float32).tiny))
    return {name: max(largest[name.rpartition(".")[0]], least) for name in gradients}
