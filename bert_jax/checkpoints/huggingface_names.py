"""The one table between our parameters and the tensors of a Hugging Face BERT.

Differences: our encoder stacks its layers along a first axis; our kernels are [in, out] with the
attention heads as axes of their own, theirs [out, in] and flat.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Rule(NamedTuple):
    """How one of our parameters stands in a file.

    Attributes:
        ours: its name in our tree.
        theirs: the tensor's name; `{layer}` where there is one tensor for each layer.
        input_axes: for kernels, how many of our axes are inputs; 0 for all that is not a kernel.
    """

    ours: str
    theirs: str
    input_axes: int = 0

    @property
    def stacked(self) -> bool:
        """Whether our parameter holds all layers."""
        return "{layer}" in self.theirs


def _dense(ours: str, theirs: str, input_axes: int = 1) -> tuple[Rule, Rule]:
    return (
        Rule(f"{ours}/kernel", f"{theirs}.weight", input_axes),
        Rule(f"{ours}/bias", f"{theirs}.bias"),
    )


def _norm(ours: str, theirs: str) -> tuple[Rule, Rule]:
    return Rule(f"{ours}/scale", f"{theirs}.weight"), Rule(f"{ours}/bias", f"{theirs}.bias")


_EMBEDDINGS, _LAYERS = "bert/embeddings", "bert/encoder/layers"
_THEIR_LAYER = "bert.encoder.layer.{layer}"

RULES: tuple[Rule, ...] = (
    *(
        Rule(f"{_EMBEDDINGS}/{table}/embedding", f"bert.embeddings.{table}.weight")
        for table in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ),
    *_norm(f"{_EMBEDDINGS}/layer_norm", "bert.embeddings.LayerNorm"),
    *_dense(f"{_LAYERS}/attention/query", f"{_THEIR_LAYER}.attention.self.query"),
    *_dense(f"{_LAYERS}/attention/key", f"{_THEIR_LAYER}.attention.self.key"),
    *_dense(f"{_LAYERS}/attention/value", f"{_THEIR_LAYER}.attention.self.value"),
    *_dense(f"{_LAYERS}/attention/output", f"{_THEIR_LAYER}.attention.output.dense", 2),
    *_norm(f"{_LAYERS}/attention_norm", f"{_THEIR_LAYER}.attention.output.LayerNorm"),
    *_dense(f"{_LAYERS}/intermediate", f"{_THEIR_LAYER}.intermediate.dense"),
    *_dense(f"{_LAYERS}/output", f"{_THEIR_LAYER}.output.dense"),
    *_norm(f"{_LAYERS}/output_norm", f"{_THEIR_LAYER}.output.LayerNorm"),
    *_dense("bert/pooler/dense", "bert.pooler.dense"),
    *_dense("mlm_head/dense", "cls.predictions.transform.dense"),
    *_norm("mlm_head/layer_norm", "cls.predictions.transform.LayerNorm"),
    Rule("mlm_head/bias", "cls.predictions.bias"),
    *_dense("nsp_head", "cls.seq_relationship"),
)


def to_tensors(rule: Rule, parameter: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Names and tensors that one parameter becomes."""
    if not rule.stacked:
        yield rule.theirs, _to_tensor(rule, parameter)
        return
    for layer, part in enumerate(parameter):
        yield rule.theirs.format(layer=layer), _to_tensor(rule, part)


def from_tensor(rule: Rule, tensor: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A tensor in the shape of our parameter (of one layer of it, if it is stacked)."""
    return (tensor.T if rule.input_axes else tensor).reshape(shape)


def tensor_shape(rule: Rule, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that the file must have for one of our parameters (of one layer)."""
    if rule.input_axes:
        inputs = int(np.prod(shape[: rule.input_axes]))
        return int(np.prod(shape[rule.input_axes :])), inputs
    return (int(np.prod(shape)),) if rule.ours.endswith("bias") else shape


def _to_tensor(rule: Rule, parameter: np.ndarray) -> np.ndarray:
    shape = tensor_shape(rule, parameter.shape)
    if not rule.input_axes:
        return parameter.reshape(shape)
    return np.ascontiguousarray(parameter.reshape(shape[::-1]).T)
