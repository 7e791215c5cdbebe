r"""What packed rows save on a TPU: FLOPs and bytes of compiled programs. Needs libtpu, no TPU.

    python launch/measure/packed_on_tpu.py [--topology v5e:1x1] [--size base] [--texts 2000]

Texts of uneven length are divided into batches as for predictions, packed and padded. For each
shape of a batch, embeddings and one layer, with attention by XLA, are compiled for the topology.
The counts, times the number of batches of that shape, stand beside the formulas: T·(8D² + 4DF +
4TD) FLOPs of a row, for the rows as computed and for the texts alone; and the least bytes: the
parameters of the layer and a vector of each token in and out, float32. Bytes are those that the
compiled text reads from and writes to the main memory (HBM): the compiler's own count includes the
on-chip memory, which holds nearly all activations of a layer.
"""

import argparse
import collections
import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmark_parts import config_of
from timed_runs import markdown
from uneven_texts import uneven_texts

from bert_jax.data.prediction_batches import BatchLayout, packed_batches, padded_batches
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import resolve_execution
from bert_jax.models.packed_rows import PackedRows
from bert_jax.planning.collectives import (
    Instruction,
    Program,
    array_bytes,
    executions,
    parse_program,
)
from bert_jax.planning.hardware import Topology, find_topology, parse_slice, prepare_process
from bert_jax.planning.roofline import real_flops

# Of a word of English.
TOKENS_PER_WORD = 1.4
LIMIT = 512
BATCH_SIZE = 32
INPUTS = ("input_ids", "token_type_ids", "attention_mask")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Of all batches; FLOPs and bytes of one layer.

    Attributes:
        tokens: tokens that the layers compute.
        formula: FLOPs of these rows.
        compiled: FLOPs that the compiler counts.
        least_bytes: bytes of the formula.
        moved_bytes: bytes that the compiled programs read from and write to the main memory.
        programs: how many were compiled.
    """

    tokens: int
    formula: float
    compiled: float
    least_bytes: float
    moved_bytes: float
    programs: int


def shapes_of(layout: BatchLayout) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of a batch."""
    arrays: dict[str, tuple[int, ...]] = dict.fromkeys(INPUTS, (layout.count, layout.length))
    return arrays | {name: array.shape for name, array in layout.indices.items()}


# They move nothing, or what they move is counted where it starts.
STILL = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element", "while", "custom-call")


def moved_bytes(program: Program) -> float:
    """Bytes that a program reads from and writes to the main memory."""
    shapes = {
        name: {line.name: line.shape for line in lines.values()}
        for name, lines in program.computations.items()
    }
    every = [line for lines in program.computations.values() for line in lines.values()]
    inside = {name for line in every if line.opcode == "fusion" for name in line.called("calls")}
    total = 0
    for name, line, times in executions(program):
        if name in inside or line.opcode in STILL or line.opcode.endswith("-done"):
            continue
        total += times * _moved_by(line, [shapes[name][operand] for operand in line.operands])
    return total


def _moved_by(line: Instruction, operands: list[str]) -> int:
    if line.opcode in ("copy-start", "slice-start"):
        # The result is both sides and a context; the source of a slice is the whole array.
        sides = _arrays(line.shape)[:2]
        return min(size for size, _ in sides) * sum(is_main for _, is_main in sides)
    written = [size for size, is_main in _arrays(line.shape) if is_main]
    read = [size for shape in operands for size, is_main in _arrays(shape) if is_main]
    if "gather" in line.name:  # of a table it reads only the rows
        read = [min(size, array_bytes(line.shape)) for size in read]
    return sum(written) + sum(read)


def _arrays(shape: str) -> list[tuple[int, bool]]:
    """The bytes of each array, and whether it is in the main memory: S(n) marks the others."""
    found = re.findall(r"(\w+\[[\d,]*\])(\{[^}]*\})?", shape)
    return [(array_bytes(array), "S(" not in layout) for array, layout in found]


def count(layouts: list[BatchLayout], config: Any, topology: Topology) -> Counts:
    """The counts of the programs of some batches."""
    encoder = Encoder(config, resolve_execution("bfloat16", attention="xla", platform="tpu"), False)
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])

    def run(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        inputs = (batch[name] for name in INPUTS)
        packed = PackedRows.of_batch(batch)
        output: Any = encoder.apply({"params": params}, *inputs, packed_rows=packed)
        return output.last_hidden_state

    def abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    row = jnp.zeros((1, 8), jnp.int32)
    shapes = jax.eval_shape(encoder.init, jax.random.key(0), row)["params"]
    params = jax.tree.map(lambda leaf: abstract(leaf.shape, leaf.dtype), shapes)
    batches = collections.Counter(tuple(shapes_of(layout).items()) for layout in layouts)
    table = config.vocab_size * config.embedding_width
    weights = 4 * (sum(leaf.size for leaf in jax.tree.leaves(shapes)) - table)
    tokens, formula, compiled, least, moved = 0, 0.0, 0.0, 0.0, 0.0
    for arrays, times in batches.items():
        batch = {name: abstract(shape, jnp.int32) for name, shape in arrays}
        computed = batch.get("pack_indices", batch["input_ids"]).shape
        lengths = np.full(int(np.prod(computed[:-1])), computed[-1])
        program = jax.jit(run).lower(params, batch).compile()
        cost: Any = program.cost_analysis()
        tokens += times * int(lengths.sum())
        formula += times * real_flops(config, lengths, 0) / 3  # the forward pass
        compiled += times * cost["flops"]
        least += times * (weights + 8 * config.hidden_size * int(lengths.sum()))
        moved += times * moved_bytes(parse_program(program.as_text() or ""))
    return Counts(tokens, formula, compiled, least, moved, len(batches))


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments, compiles and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5e:1x1")
    parser.add_argument("--size", default="base")
    parser.add_argument("--texts", type=int, default=2000)
    options = parser.parse_args(arguments)
    requested = parse_slice(options.topology)
    prepare_process(requested)
    topology = find_topology(requested)
    config = dataclasses.replace(config_of(options.size), num_hidden_layers=1)
    words = [len(text.split()) for text in uneven_texts(options.texts)]
    lengths = [min(LIMIT, 2 + round(TOKENS_PER_WORD * number)) for number in words]
    least = real_flops(config, np.array(lengths), 0) / 3
    flops, bandwidth = requested.hardware.bfloat16_flops, requested.hardware.memory_bandwidth
    if flops is None or bandwidth is None:
        parser.error(f"{options.topology} is not a TPU")
    rows = []
    for name, batches in (("padded", padded_batches), ("packed", packed_batches)):
        layouts = list(batches(lengths, batch_size=BATCH_SIZE, limit=LIMIT, row_multiple=1))
        counts = count(layouts, config, topology)
        seconds = max(counts.compiled / flops, counts.moved_bytes / bandwidth)
        rows.append(
            [
                name,
                f"{counts.programs}",
                f"{sum(lengths) / counts.tokens:.3f}",
                f"{counts.formula / least:.2f}",
                f"{counts.compiled / least:.2f}",
                f"{counts.least_bytes / sum(lengths) / 1024:.1f}",
                f"{counts.moved_bytes / sum(lengths) / 1024:.1f}",
                f"{1e3 * seconds:.2f}",
            ]
        )
    head = ["batches", "programs", "real tokens / computed", "FLOPs of the formula / of the texts"]
    head += ["compiled FLOPs / of the texts", "KiB of the formula a real token"]
    head += ["compiled KiB a real token", "least ms of a layer"]
    print(markdown(head, rows))


if __name__ == "__main__":
    main()
