"""The communication between devices in a step of a compiled program, read from its text (HLO)."""

import dataclasses
import math
import operator
import re
from collections import defaultdict
from collections.abc import Iterator

# ---- the text of a program: its computations, and how often each instruction runs ----

_HEADER = re.compile(r"(?:ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_NAME = re.compile(r"%([\w.\-]+)")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
_BITS = re.compile(r"[a-z]+(\d+)")
# The value of these opcodes is the value of their operand.
_SAME = ("copy", "bitcast", "convert")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation: `%name = shape opcode(operands), attributes`; ROOT: its result."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool

    def called(self, attribute: str) -> str | None:
        """The computation that an attribute such as `body` names, None without the attribute."""
        name = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.attributes)
        return name[1] if name else None


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        computations: instructions of each computation, in order.
        entry: name of the main computation.
        partitions: number of devices that run the program together.
    """

    computations: dict[str, tuple[Instruction, ...]]
    entry: str
    partitions: int


def parse_program(text: str) -> Program:
    """Parses `compiled.as_text()`."""
    partitions = re.search(r"num_partitions=(\d+)", text)
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = header[1]
            computations[current] = []
            if line.startswith("ENTRY"):
                entry = current
        elif current and (line_match := _INSTRUCTION.match(line)):
            root, name, rest = line_match.groups()
            computations[current].append(_instruction(name, rest, is_root=bool(root)))
    return Program(
        {name: tuple(lines) for name, lines in computations.items()},
        entry,
        int(partitions[1]) if partitions else 1,
    )


def executions(program: Program) -> Iterator[tuple[str, Instruction, int]]:
    """Each instruction with its computation and its number of executions per run of the program.

    A computation that is called several times is yielded for each call. Functions that an array
    operation applies, such as the sum of a reduction, are left out; each branch of a conditional
    counts as taken.
    """

    def visit(name: str, times: int) -> Iterator[tuple[str, Instruction, int]]:
        for instruction in program.computations[name]:
            yield name, instruction, times
            if instruction.opcode == "while":
                body = instruction.called("body")
                if body in program.computations:
                    yield from visit(body, times * trip_count(program, name, instruction))
            elif instruction.opcode.endswith(("-done", "-update")):
                continue  # its -start was counted
            else:
                for called in _callees(instruction):
                    if called in program.computations:
                        yield from visit(called, times)

    return visit(program.entry, 1)


def trip_count(program: Program, where: str, loop: Instruction) -> int:
    """The number of iterations of a `while`: the compiler's note, else derived from its condition.

    The condition of a loop over layers compares a counter, an element of the loop's tuple, with a
    constant. Any other loop counts as one iteration.
    """
    noted = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes)
    if noted:
        return int(noted[1])
    condition = _by_name(program, loop.called("condition"))
    for line in condition.values():
        if line.opcode != "compare" or "direction=LT" not in line.attributes:
            continue
        counter, limit = (condition.get(name) for name in line.operands)
        if counter is None or limit is None or limit.opcode != "constant":
            continue
        index = re.search(r"\bindex=(\d+)", counter.attributes)
        if index is None:
            continue
        start = _constant(_by_name(program, where), loop.operands[0], int(index[1])) or 0
        step = _increment(_by_name(program, loop.called("body")), int(index[1]))
        return max(-(-(int(limit.operands[0]) - start) // step), 1)
    return 1


def array_bytes(shape: str) -> int:
    """Total bytes of an array or of all arrays of a tuple, from its printed shape."""
    return sum(_one_array(dtype, sizes) for dtype, sizes in _ARRAY.findall(_without_layout(shape)))


def tuple_elements(shape: str) -> list[str]:
    """The shapes in a tuple's shape; for an array, the shape itself."""
    shape = _without_layout(shape)
    if not shape.startswith("("):
        return [shape]
    parts, depth = [""], 0
    for character in shape[1:-1]:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _one_array(dtype: str, sizes: str) -> int:
    bits = _BITS.match(dtype)
    # pred is a byte; token and opaque have no size.
    width = int(bits[1]) if bits else 8 * (dtype == "pred")
    count = 1
    for size in filter(None, sizes.split(",")):
        count *= int(size)
    return count * width // 8


def _without_layout(shape: str) -> str:
    return re.sub(r"\{[^}]*\}|/\*.*?\*/", "", shape)


def _instruction(name: str, text: str, *, is_root: bool) -> Instruction:
    end = _closing(text, 0) if text.startswith("(") else text.index(" ") - 1
    shape, rest = text[: end + 1], text[end + 1 :].strip()
    opcode, _, _ = rest.partition("(")
    closing = _closing(rest, len(opcode))
    inside = rest[len(opcode) + 1 : closing]
    operands = (inside,) if opcode == "constant" else tuple(_NAME.findall(inside))
    return Instruction(name, shape, opcode, operands, rest[closing + 1 :], is_root)


def _closing(text: str, start: int) -> int:
    """The position of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return len(text) - 1


def _callees(instruction: Instruction) -> list[str]:
    if instruction.opcode == "conditional":
        branches = re.search(r"branch_computations=\{([^}]*)\}", instruction.attributes)
        named = [instruction.called("true_computation"), instruction.called("false_computation")]
        return _NAME.findall(branches[1]) if branches else [name for name in named if name]
    called = instruction.called("calls")
    if called is None and instruction.opcode == "call":
        called = instruction.called("to_apply")
    return [called] if called else []


def _by_name(program: Program, computation: str | None) -> dict[str, Instruction]:
    return {line.name: line for line in program.computations.get(computation or "", ())}


def _increment(body: dict[str, Instruction], index: int) -> int:
    """The increment of element `index` of a loop's tuple per iteration; 1 if it cannot be found.

    A loop that the compiler has unrolled contains several additions.
    """
    root = next((line for line in body.values() if line.is_root and line.opcode == "tuple"), None)
    line = body.get(root.operands[index]) if root else None
    total = 0
    while line is not None and line.opcode in ("add", *_SAME):
        constants = [_constant(body, name) for name in line.operands]
        total += sum(value or 0 for value in constants)
        others = [
            name for name, value in zip(line.operands, constants, strict=True) if value is None
        ]
        line = body.get(others[0]) if others else None
    return max(total, 1)


def _constant(lines: dict[str, Instruction], name: str, index: int = 0) -> int | None:
    """An integer, traced back to its constant, also as an element of a tuple; else None."""
    line = lines.get(name)
    if line is not None and line.opcode == "tuple":
        line = lines.get(line.operands[index])
    while line is not None and line.opcode in _SAME:
        line = lines.get(line.operands[0])
    if line is None or line.opcode != "constant" or not line.operands[0].isdigit():
        return None
    return int(line.operands[0])


# ---- the collectives of a program ----

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
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
        kind: one of `KINDS`.
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


@dataclasses.dataclass(frozen=True)
class Traffic:
    """All collectives of one kind in a step.

    Attributes:
        count: number of runs.
        bytes: bytes of the arrays on one device, over all runs.
        sent_bytes: minimum number of bytes that a device sends for them.
    """

    count: int
    bytes: int
    sent_bytes: float


def collectives_of(text: str) -> list[Collective]:
    """The collectives of a compiled program, from `compiled.as_text()`.

    An asynchronous collective appears in the text several times under one channel: its start, its
    end, and in between, possibly in a loop that ends earlier. It counts once. The TPU compiler also
    assigns one channel to collectives that it combines: those differ in size.
    """
    program = parse_program(text)
    places: dict[str, dict[str, Collective]] = defaultdict(dict)
    for computation, instruction, times in executions(program):
        kind = _kind(computation, instruction)
        if kind is None:
            continue
        collective = _collective(program, instruction, kind, times)
        channel = re.search(r"\bchannel_id=(\d+)", instruction.attributes)
        key = f"{channel[1]}/{collective.bytes}" if channel else f"{computation}/{instruction.name}"
        before = places[key].get(computation)
        count = times + (before.count if before else 0)
        places[key][computation] = dataclasses.replace(collective, count=count)
    unique = [min(place.values(), key=operator.attrgetter("count")) for place in places.values()]
    return [collective for collective in unique if collective.group > 1]


def traffic(collectives: list[Collective]) -> dict[str, Traffic]:
    """The collectives of a program by kind."""
    return {
        kind: Traffic(
            count=sum(collective.count for collective in of_kind),
            bytes=sum(collective.count * collective.bytes for collective in of_kind),
            sent_bytes=sum(collective.sent_bytes for collective in of_kind),
        )
        for kind in KINDS
        if (of_kind := [collective for collective in collectives if collective.kind == kind])
    }


def _kind(computation: str, instruction: Instruction) -> str | None:
    kind = instruction.opcode.removesuffix("-start")
    # The TPU compiler writes a reduce-scatter as an all-reduce followed by a slice.
    if kind == "all-reduce" and computation.startswith("all-reduce-scatter"):
        kind = "reduce-scatter"
    return kind if kind in KINDS else None


def _collective(program: Program, instruction: Instruction, kind: str, count: int) -> Collective:
    group = _group(program, instruction)
    shape = instruction.shape
    elements = tuple_elements(shape)
    # The tuple at the start of a gather or a permutation has inputs, outputs and more.
    if instruction.opcode.endswith("-start") and len(elements) > 1 and kind != "all-reduce":
        shape = elements[1]
    size = array_bytes(shape)
    if instruction.opcode.startswith("reduce-scatter"):
        size *= group
    return Collective(kind, count, size, group)


def _group(program: Program, instruction: Instruction) -> int:
    """The number of devices that take part together; HLO writes it in one of four ways."""
    text = instruction.attributes
    if instruction.opcode.startswith("collective-permute"):
        return program.partitions
    if axes := re.search(r"replica_groups=mesh\[([^\]]*)\].*?\{('[^}]*)\}", text):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", axes[1])}
        # A part of an axis is printed as 'axis':(before)size.
        parts = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", axes[2])
        return math.prod(int(part) if part else sizes[name] for name, part in parts)
    if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]", text):
        return int(counted[2])
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return listed[1].count(",") + 1
    return program.partitions
