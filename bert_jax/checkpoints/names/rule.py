"""One line of a name table.

Our encoder stacks its layers along a first axis, their files have one tensor for each layer; our
kernels are [in, out] with the attention heads as axes of their own, theirs are flat matrices.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_STRIP = 16  # float32 values in a cache line


class Rule(NamedTuple):
    """How one of our parameters stands in a file.

    Attributes:
        ours: its name in our tree.
        theirs: the tensor's name; `{layer}` where there is one tensor for each layer.
        input_axes: for kernels, how many of our axes are inputs; 0 for all that is not a kernel.
        transposed: for kernels, whether the tensor is [out, in] rather than [in, out].
    """

    ours: str
    theirs: str
    input_axes: int = 0
    transposed: bool = False

    @property
    def stacked(self) -> bool:
        """Whether our parameter holds all layers."""
        return "{layer}" in self.theirs


def tensor_shape(rule: Rule, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that the tensor of one of our parameters (of one layer of it) must have."""
    if rule.input_axes:
        inputs = int(np.prod(shape[: rule.input_axes]))
        outputs = int(np.prod(shape[rule.input_axes :]))
        return (outputs, inputs) if rule.transposed else (inputs, outputs)
    return (int(np.prod(shape)),) if rule.ours.endswith("bias") else shape


def fill(rule: Rule, parameter: np.ndarray, tensor: np.ndarray) -> None:
    """Writes a tensor into our parameter (into one layer of it), in the parameter's dtype.

    Args:
        rule: how the parameter stands in the file.
        parameter: the place, contiguous.
        tensor: of the shape that `tensor_shape` gives.
    """
    if not rule.transposed:
        parameter[...] = tensor.reshape(parameter.shape)
        return
    matrix = parameter.reshape(tensor.shape[::-1])
    # Strips as wide as a cache line: three times as fast as one transposed copy.
    for start in range(0, len(tensor), _STRIP):
        matrix[:, start : start + _STRIP] = tensor[start : start + _STRIP].T


def to_tensor(rule: Rule, parameter: np.ndarray) -> np.ndarray:
    """The tensor of our parameter (of one layer of it), contiguous."""
    shape = tensor_shape(rule, parameter.shape)
    if not rule.transposed:
        return np.ascontiguousarray(parameter).reshape(shape)
    return np.ascontiguousarray(parameter.reshape(shape[::-1]).T)


@dataclasses.dataclass(frozen=True)
class NameTable:
    """How one family of files names the parameters.

    Attributes:
        rules: one for each parameter of any of the models.
        canonical: from a name in a file to the name in `rules` (spellings differ over the years);
            None for what is no parameter of the model, as an optimizer's slots.
    """

    rules: tuple[Rule, ...]
    canonical: Callable[[str], str | None]
