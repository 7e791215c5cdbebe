r"""What packed rows save on a TPU: FLOPs and bytes of compiled programs. Needs libtpu, no TPU.

    python launch/measure/packed_on_tpu.py [--topology v5e:1x1] [--size base] [--texts 2000]

Texts of uneven length are divided into batches as for predictions, packed and padded. For each
shape of a batch, embeddings and one layer, with attention by XLA, are compiled for the topology.
The compiler's counts, times the number of batches of that shape, stand beside the formula,
T·(8D² + 4DF + 4TD) FLOPs of a row, for the rows as computed and for the texts alone.
"""

import argparse
import collections
import dataclasses
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
        accessed: bytes that the compiled programs read and write.
        programs: how many were compiled.
    """

    tokens: int
    formula: float
    compiled: float
    accessed: float
    programs: int


def shapes_of(layout: BatchLayout) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of a batch."""
    arrays: dict[str, tuple[int, ...]] = dict.fromkeys(INPUTS, (layout.count, layout.length))
    return arrays | {name: array.shape for name, array in layout.indices.items()}


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
    tokens, formula, compiled, accessed = 0, 0.0, 0.0, 0.0
    for arrays, times in batches.items():
        batch = {name: abstract(shape, jnp.int32) for name, shape in arrays}
        computed = batch.get("pack_indices", batch["input_ids"]).shape
        lengths = np.full(int(np.prod(computed[:-1])), computed[-1])
        cost: Any = jax.jit(run).lower(params, batch).compile().cost_analysis()
        tokens += times * int(lengths.sum())
        formula += times * real_flops(config, lengths, 0) / 3  # the forward pass
        compiled += times * cost["flops"]
        accessed += times * cost["bytes accessed"]
    return Counts(tokens, formula, compiled, accessed, len(batches))


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
        seconds = max(counts.compiled / flops, counts.accessed / bandwidth)
        rows.append(
            [
                name,
                f"{counts.programs}",
                f"{sum(lengths) / counts.tokens:.3f}",
                f"{counts.formula / least:.2f}",
                f"{counts.compiled / least:.2f}",
                f"{counts.accessed / sum(lengths) / 1024:.1f}",
                f"{1e3 * seconds:.2f}",
            ]
        )
    head = ["batches", "programs", "real tokens / computed", "FLOPs of the formula / of the texts"]
    head += ["compiled FLOPs / of the texts", "KiB a real token", "least ms of a layer"]
    print(markdown(head, rows))


if __name__ == "__main__":
    main()
