"""Measures the least time of a forward pass: its matrix products alone, as XLA computes them.

    python launch/measure/benchmark_matmuls.py [--size base] [--batch 8] [--length 128]

Each product of an encoder layer alone, from memory to memory, without biases, softmax, GELU and
LayerNorm; the median of `--rounds` turns, in which all take part. Prints a table for float32 and
bfloat16, with the sum over all layers: no encoder made of these products is faster.
"""

import argparse
import dataclasses
import math
import statistics
import time

import jax
import jax.numpy as jnp
from timed_runs import markdown

from bert_jax.families import bert
from bert_jax.models.kernels.matmul import matmul, matmul_nt

# Steps of one turn.
_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Matmul:
    """One kind of product of a layer.

    Attributes:
        name: what it computes.
        times: how often a layer does it.
        left: shape of its left operand.
        right: shape of its right one.
        over_last: whether it sums over the last axes of both.
    """

    name: str
    times: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    over_last: bool = False

    @property
    def flops(self) -> int:
        """Of one of them."""
        columns = self.right[-2 if self.over_last else -1]
        return 2 * math.prod(self.left) * columns


def matmuls_of(size: str, batch: int, length: int) -> tuple[int, list[Matmul]]:
    """The layers, and the matrix products of one."""
    config = bert.FAMILY.new_config(size)
    layers, width, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    inner, tokens = config.intermediate_size, batch * length
    of_head = (batch, heads, length, config.head_dim)
    weights = (batch, heads, length, length)
    return layers, [
        Matmul("query, key, value, output", 4, (tokens, width), (width, width)),
        Matmul("scores of attention", 1, of_head, of_head, over_last=True),
        Matmul("context of attention", 1, weights, of_head),
        Matmul("intermediate", 1, (tokens, width), (width, inner)),
        Matmul("output of it", 1, (tokens, inner), (inner, width)),
    ]


def seconds(matmuls: list[Matmul], dtype: str, rounds: int) -> list[float]:
    """The median of one of each kind."""
    key = jax.random.key(0)
    calls = []
    for one in matmuls:
        operands = [jax.random.normal(key, shape, dtype) for shape in (one.left, one.right)]
        multiply = jax.jit(matmul_nt if one.over_last else matmul)
        jax.block_until_ready(multiply(*operands))
        calls.append((multiply, operands))
    measured: list[list[float]] = [[] for _ in matmuls]
    for _ in range(rounds):
        for times, (multiply, operands) in zip(measured, calls, strict=True):
            for _ in range(_STEPS):
                start = time.perf_counter()
                jax.block_until_ready(multiply(*operands))
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in measured]


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", choices=bert.SIZES)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    layers, matmuls = matmuls_of(arguments.size, arguments.batch, arguments.length)
    rows = []
    for dtype in (jnp.float32, jnp.bfloat16):
        name = jnp.dtype(dtype).name
        taken = seconds(matmuls, name, arguments.rounds)
        for one, each in zip(matmuls, taken, strict=True):
            speed = f"{one.flops / each / 1e9:.0f}"
            rows.append([name, one.name, str(layers * one.times), f"{1e3 * each:.2f}", speed])
        total = layers * sum(one.times * each for one, each in zip(matmuls, taken, strict=True))
        flops = layers * sum(one.times * one.flops for one in matmuls)
        rows.append([name, "all", "", f"{1e3 * total:.0f}", f"{flops / total / 1e9:.0f}"])
    print(markdown(["dtype", "matmul", "times", "ms of one", "GFLOP/s"], rows, texts=2), end="")


if __name__ == "__main__":
    main()
