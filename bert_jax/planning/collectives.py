"""The communication between devices in a step of a compiled program, read from its text (HLO).

The text is the only form that has all of it. XLA converts no program with tiled layouts, such as a
TPU's, to StableHLO; jaxlib's `HloInstruction` has neither attributes nor shapes; and nothing that
JAX installs reads the binary form.
"""

import dataclasses
import math
import operator
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

# ---- the text of a program: its computations, and how often each instruction runs ----

_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
# The value of these opcodes is the value of their operand.
_SAME = ("copy", "bitcast", "convert")
# Attributes with computations that run once, or with branches; each branch counts as taken.
_CALLS = r"(?:calls|branch_computations|true_computation|false_computation)"


class _Instruction(NamedTuple):
    """One line of a computation: `%name = shape opcode(operands), attributes`; ROOT: its result."""

    is_root: bool
    name: str
    shape: str
    opcode: str
    text: str  # all after the opening parenthesis

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.text.partition("), ")[0])

    def called(self, attribute: str) -> list[str]:
        """The computations that an attribute such as `body` names."""
        named = re.findall(rf"\b{attribute}=(\{{[^}}]*\}}|[^,\s]+)", self.text)
        return re.findall(r"[\w.\-]+", " ".join(named))


@dataclasses.dataclass(frozen=True)
class _Program:
    """A compiled program: its computations by name, the main one, and the number of devices."""

    computations: dict[str, dict[str, _Instruction]]
    entry: str
    partitions: int


def _parse_program(text: str) -> _Program:
    computations: dict[str, dict[str, _Instruction]] = {}
    entry = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = computations[header[2]] = {}
            entry = header[2] if header[1] else entry
        elif computations and (parsed := _INSTRUCTION.match(line)):
            instruction = _Instruction(bool(parsed[1]), *parsed.groups()[1:])
            current[instruction.name] = instruction
    partitions = re.search(r"num_partitions=(\d+)", text)
    return _Program(computations, entry, int(partitions[1]) if partitions else 1)


def _executions(
    program: _Program, name: str, times: int = 1
) -> Iterator[tuple[str, _Instruction, int]]:
    """Each instruction of a computation and its callees, with its number of runs.

    A computation that is called several times is yielded for each call. Functions that an array
    operation applies, such as the sum of a reduction, are left out.
    """
    for instruction in program.computations.get(name, {}).values():
        yield name, instruction, times
        if instruction.opcode == "while":
            rounds = times * _trip_count(program, name, instruction)
            yield from _executions(program, instruction.called("body")[0], rounds)
        elif not instruction.opcode.endswith(("-done", "-update")):  # its -start was counted
            is_call = instruction.opcode == "call"
            for called in instruction.called("to_apply" if is_call else _CALLS):
                yield from _executions(program, called, times)


def _trip_count(program: _Program, name: str, loop: _Instruction) -> int:
    """The number of iterations of a `while`: the compiler's note, else derived from its condition.

    The condition of a loop over layers compares a counter, an element of the loop's tuple, with a
    constant. Any other loop counts as one iteration.
    """
    if noted := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.text):
        return int(noted[1])
    (condition,), (body,) = (
        [program.computations[called] for called in loop.called(attribute)]
        for attribute in ("condition", "body")
    )
    for line in condition.values():
        if line.opcode != "compare" or "direction=LT" not in line.text:
            continue
        counter, limit = line.operands
        index, stop = re.search(r"\bindex=(\d+)", condition[counter].text), _value(condition, limit)
        if index is None or stop is None:
            continue
        start = _value(program.computations[name], loop.operands[0], int(index[1])) or 0
        return max(-(-(stop - start) // _increment(body, int(index[1]))), 1)
    return 1


def _increment(body: dict[str, _Instruction], index: int) -> int:
    """The increment of element `index` of a loop's tuple per iteration; 1 if it is not known.

    A loop that the compiler has unrolled contains several additions.
    """
    names, total = [line.operands[index] for line in body.values() if line.is_root], 0
    while names and body[names[0]].opcode in ("add", *_SAME):
        values = {name: _value(body, name) for name in body[names[0]].operands}
        total += sum(value or 0 for value in values.values())
        names = [name for name, value in values.items() if value is None]
    return max(total, 1)


def _value(lines: dict[str, _Instruction], name: str, index: int = 0) -> int | None:
    """An integer, traced back to its constant, also as an element of a tuple; else None."""
    line = lines[name]
    if line.opcode == "tuple":
        line = lines[line.operands[index]]
    while line.opcode in _SAME:
        line = lines[line.operands[0]]
    value = re.match(r"\d+(?=\))", line.text)
    return int(value[0]) if value and line.opcode == "constant" else None


# ---- the collectives of a program ----

# The minimum that each of n devices sends, as a fraction of the whole array.
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
        kind: opcode, such as "all-reduce".
        count: number of runs per step.
        bytes: bytes of the whole array on one device, per run: before a reduce-scatter, after an
            all-gather.
        group: number of devices that take part together.
    """

    kind: str
    count: int
    bytes: int
    group: int

    @property
    def sent_bytes(self) -> float:
        """The minimum number of bytes that a device sends for it in a step, over all its runs."""
        return self.count * self.bytes * _SENT[self.kind](self.group)


def collectives_of(text: str) -> list[Collective]:
    """The collectives of a compiled program, from `compiled.as_text()`.

    An asynchronous collective appears in the text several times under one channel: its start, its
    end, and in between, possibly in a loop that ends earlier. It counts once. The TPU compiler also
    assigns one channel to collectives that it combines: those differ in size.
    """
    program = _parse_program(text)
    appearances: dict[str, dict[str, Collective]] = defaultdict(dict)
    for computation, instruction, times in _executions(program, program.entry):
        kind = instruction.opcode.removesuffix("-start")
        # The TPU compiler writes a reduce-scatter as an all-reduce followed by a slice.
        if kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
            kind = "reduce-scatter"
        if kind not in _SENT:
            continue
        size, group = _size(instruction), _group(program, instruction)
        if instruction.opcode.startswith("reduce-scatter"):
            size *= group
        channel = re.search(r"\bchannel_id=(\d+)", instruction.text)
        key = f"{channel[1]}/{size}" if channel else f"{computation}/{instruction.name}"
        before = appearances[key].get(computation)
        count = times + (before.count if before else 0)
        appearances[key][computation] = Collective(kind, count, size, group)
    unique = [min(each.values(), key=operator.attrgetter("count")) for each in appearances.values()]
    return [collective for collective in unique if collective.group > 1]


def traffic(collectives: list[Collective]) -> dict[str, dict[str, float]]:
    """All collectives of a step by kind.

    Returns:
        {kind: {"count": number of runs, "bytes": bytes of the arrays on one device over all runs,
        "sent_bytes": minimum number of bytes that a device sends for them}}
    """
    return {
        kind: {
            "count": sum(each.count for each in same_kind),
            "bytes": sum(each.count * each.bytes for each in same_kind),
            "sent_bytes": sum(each.sent_bytes for each in same_kind),
        }
        for kind in _SENT
        if (same_kind := [each for each in collectives if each.kind == kind])
    }


def _size(instruction: _Instruction) -> int:
    """Bytes of the result: an array or all arrays of a tuple."""
    arrays = _ARRAY.findall(instruction.shape)
    if instruction.opcode.endswith("-start") and not instruction.opcode.startswith("all-reduce"):
        # The tuple at the start of a gather or a permutation has inputs, outputs and more.
        inputs = len(instruction.operands)
        arrays = arrays[inputs : 2 * inputs] or arrays
    total = 0
    for dtype, sizes in arrays:
        bits = re.match(r"[a-z]+(\d+)", dtype)
        # pred is a byte; token and opaque have no size.
        width = int(bits[1]) if bits else 8 * (dtype == "pred")
        total += math.prod(int(size) for size in sizes.split(",") if size) * width // 8
    return total


def _group(program: _Program, instruction: _Instruction) -> int:
    """The number of devices that take part together; HLO writes it in one of four ways."""
    text = instruction.text
    if instruction.opcode.startswith("collective-permute"):
        return program.partitions
    if axes := re.search(r"replica_groups=mesh\[([^\]]*)\].*?\{('[^}]*)\}", text):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", axes[1]))
        # A part of an axis is printed as 'axis':(before)size.
        named = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", axes[2])
        return math.prod(int(part or sizes[name]) for name, part in named)
    if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]", text):
        return int(counted[2])
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return listed[1].count(",") + 1
    return program.partitions
