"""Differences between two sides and their limits, as a table and as a dict."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

HIDDEN_STATES, DECODER_STATES = "hidden states", "hidden states of the decoder"
LOGITS, LOSS, GRADIENT = "logits", "loss", "gradient"

# The largest absolute difference that counts as rounding. Gradients: relative to their scale, see
# `gradient_scales`. Float32 sums in another order differ by a few 1e-6 in a model of base size.
TOLERANCES: Mapping[str, float] = {
    HIDDEN_STATES: 2e-5,
    DECODER_STATES: 2e-5,
    LOGITS: 1e-4,
    LOSS: 1e-4,
    GRADIENT: 1e-4,
}


# What one side computed from one input, by quantity and name: "embeddings", "layer 3"; the name of
# the logits, of the loss or of a tensor. Float32 or float64.
Values = Mapping[tuple[str, str], Any]


def named_values(
    states: np.ndarray,
    logits: Mapping[str, np.ndarray],
    losses: Mapping[str, float],
    gradients: Mapping[str, np.ndarray],
    decoder_states: np.ndarray | None = None,
) -> Values:
    """Hidden states [L + 1, B · K, T, D], logits, losses, gradients of the last, as `Values`."""
    quantities = {
        HIDDEN_STATES: _by_layer(states),
        DECODER_STATES: {} if decoder_states is None else _by_layer(decoder_states),
        LOGITS: logits,
        LOSS: losses,
        GRADIENT: gradients,
    }
    return {
        (quantity, name): value
        for quantity, values in quantities.items()
        for name, value in values.items()
    }


def _by_layer(states: np.ndarray) -> dict[str, np.ndarray]:
    names = ["embeddings", *(f"layer {n}" for n in range(len(states) - 1))]
    return dict(zip(names, states, strict=True))


def states_of(values: Values) -> np.ndarray:
    """The hidden states, [L + 1, B · K, T, D]."""
    return np.stack([state for (kind, _), state in values.items() if kind == HIDDEN_STATES])


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference between the two sides in one quantity, for one input.

    Attributes:
        quantity: one of `TOLERANCES`.
        name: see `Values`.
        input_name: name of the input.
        maximum: largest absolute difference; NaN if a value of one side is NaN.
        mean: mean absolute difference.
        count: number of values that were compared.
        error: value that the tolerance limits: for gradients `maximum` over their scale, else
            `maximum`.
    """

    quantity: str
    name: str
    input_name: str
    maximum: float
    mean: float
    count: int
    error: float

    @property
    def tolerance(self) -> float:
        """The largest `error` that counts as rounding."""
        return TOLERANCES[self.quantity]

    @property
    def agrees(self) -> bool:
        """Whether the difference is rounding."""
        return self.error <= self.tolerance  # false for NaN


def difference(
    quantity: str,
    name: str,
    input_name: str,
    computed: np.ndarray | float,
    expected: np.ndarray | float,
    scale: float = 1.0,
) -> Difference:
    """Compares two arrays of equal shape; the error is divided by `scale`."""
    apart = np.abs(np.subtract(computed, expected, dtype=np.float64))
    maximum = float(apart.max())
    error = maximum / scale if maximum else 0.0
    return Difference(quantity, name, input_name, maximum, float(apart.mean()), apart.size, error)


def gradient_scales(gradients: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The scale that the difference of each gradient is divided by.

    It is the largest absolute value in the gradients of weight and bias of the same dense map or
    LayerNorm of the reference. Not of the tensor alone: softmax ignores a constant, so the true
    gradients of some biases are zero (of every key, of the span head, of the score of a choice),
    and their computed values are rounding.

    It is at least a millionth of the largest gradient of the model, about the resolution of
    float32.
    """
    largest: dict[str, float] = {}
    for name, gradient in gradients.items():
        part = name.rpartition(".")[0]
        largest[part] = max(largest.get(part, 0.0), float(np.abs(gradient).max()))
    least = max(1e-6 * max(largest.values()), float(np.finfo(np.float32).tiny))
    return {name: max(largest[name.rpartition(".")[0]], least) for name in gradients}


# A tensor of the encoder: the prefix of the family, and the layer; of a decoder, too.
_PREFIX = re.compile(r"^\w+\.(?=(embeddings|encoder|decoder|pooler)\.)")
_LAYER = re.compile(r"^(?:\w+\.)??(?:encoder|(decoder)|transformer)\.(?:layers?|h|block)\.(\d+)\.")


@dataclasses.dataclass(frozen=True)
class ParityReport:
    """The differences between a model in bert_jax and the reference.

    Attributes:
        model: directory that bert_jax read.
        reference: directory that transformers read.
        architecture: Hugging Face's class.
        versions: versions of the libraries of the reference.
        inputs: descriptions of the inputs, by name.
        differences: all differences, input by input, in the order of the computation.
        equal_tensors: number of the reference's parameters that are bitwise equal, and their total.
        causes: causes of the differences, if known.
    """

    model: str
    reference: str
    architecture: str
    versions: str
    inputs: Mapping[str, str]
    differences: tuple[Difference, ...]
    equal_tensors: tuple[int, int]
    causes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every difference is rounding."""
        return all(entry.agrees for entry in self.differences)

    def as_table(self) -> str:
        """One line per quantity, or per layer for gradients, with the name of the worst."""
        head = [
            f"model       {self.model} ({self.architecture}, float32)",
            f"reference   {self.reference} ({self.versions})",
            *(f"input       {name}: {text}" for name, text in self.inputs.items()),
            "parameters  {} of {} tensors equal to the bit".format(*self.equal_tensors),
            "",
        ]
        names = "".join(f"{name:^20}" for name in self.inputs)
        columns = f"{'max':>10}{'mean':>10}" * len(self.inputs)
        head.append(f"{'':26}{names}".rstrip())
        head.append(f"{'absolute difference':26}{columns}{'worst':>10}{'limit':>9}")
        groups: dict[str, dict[str, list[Difference]]] = {quantity: {} for quantity in TOLERANCES}
        for entry in self.differences:
            groups[entry.quantity].setdefault(_group(entry), []).append(entry)
        lines = []
        for quantity, by_label in groups.items():
            if not by_label:  # no decoder
                continue
            relative = ": their worst is relative to the largest value of the reference's"
            lines.append(f"gradients{relative}" if quantity == GRADIENT else quantity)
            lines += [self._line(group, entries) for group, entries in by_label.items()]
        return "\n".join((*head, *lines, "", *self._verdict()))

    def as_dict(self) -> dict[str, Any]:
        """The whole report for JSON, with every gradient separate."""
        return {
            "model": self.model,
            "reference": self.reference,
            "architecture": self.architecture,
            "versions": self.versions,
            "agrees": self.agrees,
            "causes": list(self.causes),
            "inputs": dict(self.inputs),
            "tensors": self.equal_tensors[1],
            "equal_tensors": self.equal_tensors[0],
            "tolerances": dict(TOLERANCES),
            "differences": [
                {
                    "quantity": entry.quantity,
                    "name": entry.name,
                    "input": entry.input_name,
                    "max": _number(entry.maximum),
                    "mean": _number(entry.mean),
                    "error": _number(entry.error),
                    "agrees": entry.agrees,
                }
                for entry in self.differences
            ],
        }

    def _line(self, label: str, entries: Sequence[Difference]) -> str:
        cells = ""
        for name in self.inputs:
            maximum, mean, count = np.array(
                [(one.maximum, one.mean, one.count) for one in entries if one.input_name == name]
            ).T
            cells += f"{maximum.max():10.1e}{np.average(mean, weights=count):10.1e}"
        worst = entries[int(np.argmax([entry.error for entry in entries]))]  # NaN is the worst
        verdict = "ok" if all(entry.agrees for entry in entries) else "DIFFERS"
        tensor = ""
        if worst.quantity == GRADIENT:
            tensor = _PREFIX.sub("", _LAYER.sub("", worst.name)).removeprefix(f"{label}.")
        line = f"  {label:24}{cells}{worst.error:10.1e}{worst.tolerance:9.0e}  {verdict:8}{tensor}"
        return line.rstrip()

    def _verdict(self) -> list[str]:
        wrong = [entry for entry in self.differences if not entry.agrees]
        if not wrong:
            return [f"agrees: {len(self.differences)} differences, all of them rounding"]
        first = wrong[0]
        text = (
            f"DIFFERS: {len(wrong)} of {len(self.differences)}, first in {first.quantity}, "
            f"{first.name} ({first.input_name})"
        )
        causes = self.causes or (
            "unknown: the weights are equal, and neither another epsilon, activation or number "
            "of heads nor rounding explains it",
        )
        return [text, *(f"likely cause: {cause}" for cause in causes)]


def _group(entry: Difference) -> str:
    """The line of the table for a difference."""
    if entry.quantity != GRADIENT:
        return entry.name
    if layer := _LAYER.match(entry.name):
        return " ".join(filter(None, (layer[1], "layer", layer[2])))
    parts = _PREFIX.sub("", entry.name).split(".")
    return ".".join(parts[:2]) if parts[0] == "cls" else parts[0]


def _number(value: float) -> float | str:
    """The number; as text if it is not finite, for JSON."""
    return value if math.isfinite(value) else str(value)
