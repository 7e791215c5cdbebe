"""What the devices of a compiled program send each other in a step."""

import dataclasses
import math
import re
from collections import defaultdict

from bert_jax.planning import hlo

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# What each device sends at least, as a share of the whole array, among n devices.
_SENT = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n,
    "ragged-all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1.0,
    "collective-broadcast": lambda n: 1.0,
}


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective instruction of a program.

    Attributes:
        kind: one of `KINDS`.
        count: how often a step runs it.
        bytes: of the whole array on one device, once: before a reduce-scatter, after an all-gather.
        group: devices that take part together.
    """

    kind: str
    count: int
    bytes: int
    group: int

    @property
    def sent_bytes(self) -> float:
        """The least that a device sends for it in a step, over all its runs."""
        return self.count * self.bytes * _SENT[self.kind](self.group)


@dataclasses.dataclass(frozen=True)
class Traffic:
    """All collectives of one kind in a step.

    Attributes:
        count: how many run.
        bytes: of the arrays on one device, all runs.
        sent_bytes: the least that a device sends for them.
    """

    count: int
    bytes: int
    sent_bytes: float


def collectives_of(text: str) -> list[Collective]:
    """The collectives of a compiled program, from `compiled.as_text()`.

    One that the compiler runs beside others stands in the text several times under one channel: as
    its start, as its end, and in between, perhaps in a loop that it outlasts. It counts once. The
    TPU compiler gives those that it puts together one channel, too: other sizes are others.
    """
    program = hlo.parse(text)
    places: dict[str, dict[str, Collective]] = defaultdict(dict)
    for computation, instruction, times in hlo.runs(program):
        kind = _kind(computation, instruction)
        if kind is None:
            continue
        one = _collective(program, instruction, kind, times)
        channel = re.search(r"\bchannel_id=(\d+)", instruction.attributes)
        key = f"{channel[1]}/{one.bytes}" if channel else f"{computation}/{instruction.name}"
        before = places[key].get(computation)
        count = times + (before.count if before else 0)
        places[key][computation] = dataclasses.replace(one, count=count)
    found = [min(place.values(), key=lambda one: one.count) for place in places.values()]
    return [one for one in found if one.group > 1]


def traffic(collectives: list[Collective]) -> dict[str, Traffic]:
    """The collectives of a program by kind."""
    return {
        kind: Traffic(
            count=sum(one.count for one in ours),
            bytes=sum(one.count * one.bytes for one in ours),
            sent_bytes=sum(one.sent_bytes for one in ours),
        )
        for kind in KINDS
        if (ours := [one for one in collectives if one.kind == kind])
    }


def _kind(computation: str, instruction: hlo.Instruction) -> str | None:
    kind = instruction.opcode.removesuffix("-start")
    # The TPU compiler writes a reduce-scatter as an all-reduce of which a part is taken.
    if kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"
    return kind if kind in KINDS else None


def _collective(
    program: hlo.Program, instruction: hlo.Instruction, kind: str, count: int
) -> Collective:
    group = _group(program, instruction)
    shape = instruction.shape
    elements = hlo.tuple_elements(shape)
    # The start of a gather or a permutation has inputs, outputs and more.
    if instruction.opcode.endswith("-start") and len(elements) > 1 and kind != "all-reduce":
        shape = elements[1]
    size = hlo.array_bytes(shape)
    if instruction.opcode.startswith("reduce-scatter"):
        size *= group
    return Collective(kind, count, size, group)


def _group(program: hlo.Program, instruction: hlo.Instruction) -> int:
    """How many devices take part together; written in one of four ways."""
    text = instruction.attributes
    if instruction.opcode.startswith("collective-permute"):
        return program.partitions
    if axes := re.search(r"replica_groups=mesh\[([^\]]*)\].*?\{('[^}]*)\}", text):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes[1])}
        # EvalSet of an axis is written 'axis':(before)size.
        parts = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", axes[2])
        return math.prod(int(part) if part else sizes[name] for name, part in parts)
    if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]", text):
        return int(counted[2])
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return listed[1].count(",") + 1
    return program.partitions
