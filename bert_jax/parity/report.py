"""What a comparison found, as a table for people and as a dict for programs."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_jax.parity.quantities import (
    GRADIENT,
    HIDDEN_STATES,
    LOGITS,
    LOSS,
    TOLERANCES,
    Difference,
)

_SECTIONS = (
    (HIDDEN_STATES, "hidden states"),
    (LOGITS, "logits"),
    (LOSS, "loss"),
    (GRADIENT, "gradients: their worst is relative to the largest value of the reference's"),
)
# Of a tensor of the encoder: the prefix of the family, and the layer.
_PREFIX = re.compile(r"^\w+\.(?=(embeddings|encoder|pooler)\.)")
_LAYER = re.compile(r"^\w+\.encoder\.layer\.(\d+)\.")


@dataclasses.dataclass(frozen=True)
class ParityReport:
    """How far our reading of a model is from the reference's.

    Attributes:
        model: its directory, as we read it.
        reference: the directory that transformers read.
        architecture: Hugging Face's class.
        versions: of what computed the reference.
        inputs: what is special about each input, by name.
        differences: every number, input by input, in the order in which a model computes.
        equal_tensors: how many of the reference's parameters are ours to the bit, and of how many.
        causes: why they differ, if that was found.
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
        """A line for each quantity; the gradients of a layer share one, which names the worst."""
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
        lines = []
        for quantity, title in _SECTIONS:
            lines.append(title)
            chosen = [entry for entry in self.differences if entry.quantity == quantity]
            groups = dict.fromkeys(_group(entry) for entry in chosen)
            lines += [
                self._line(group, [entry for entry in chosen if _group(entry) == group])
                for group in groups
            ]
        return "\n".join((*head, *lines, "", *self._verdict()))

    def as_dict(self) -> dict[str, Any]:
        """Everything, every gradient by itself; fit for JSON."""
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
                    "judged": _number(entry.judged),
                    "agrees": entry.agrees,
                }
                for entry in self.differences
            ],
        }

    def _line(self, label: str, entries: Sequence[Difference]) -> str:
        cells = ""
        for name in self.inputs:
            of_input = [entry for entry in entries if entry.input_name == name]
            cells += f"{_largest(entry.maximum for entry in of_input):10.1e}{_mean(of_input):10.1e}"
        worst = max(entries, key=_severity)
        verdict = "ok" if all(entry.agrees for entry in entries) else "DIFFERS"
        tensor = ""
        if worst.quantity == GRADIENT:
            tensor = _PREFIX.sub("", _LAYER.sub("", worst.name)).removeprefix(f"{label}.")
        line = f"  {label:24}{cells}{worst.judged:10.1e}{worst.tolerance:9.0e}  {verdict:8}{tensor}"
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
            "not found: the weights are equal, and neither another epsilon, activation or number "
            "of heads nor rounding explains it",
        )
        return [text, *(f"likely cause: {cause}" for cause in causes)]


def _group(entry: Difference) -> str:
    """The line of the table that a difference goes into."""
    if entry.quantity != GRADIENT:
        return entry.name
    if layer := _LAYER.match(entry.name):
        return f"layer {layer[1]}"
    parts = _PREFIX.sub("", entry.name).split(".")
    return ".".join(parts[:2]) if parts[0] == "cls" else parts[0]


def _severity(entry: Difference) -> float:
    """What is not a number is worst."""
    return math.inf if math.isnan(entry.judged) else entry.judged


def _largest(values: Iterable[float]) -> float:
    """The maximum; not a number if one of them is not."""
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values)


def _mean(entries: Sequence[Difference]) -> float:
    """Over all numbers in all of them."""
    return sum(entry.mean * entry.count for entry in entries) / sum(
        entry.count for entry in entries
    )


def _number(value: float) -> float | str:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else str(value)
