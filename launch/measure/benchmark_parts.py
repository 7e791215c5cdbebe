"""Measures how long each part of an encoder takes: matmuls, attention, GELU, LayerNorm, dropout.

    python launch/measure/benchmark_parts.py [--size minilm] [--batch 32] [--length 128] [--train]

Each part of a layer is timed alone, as the package computes it on this machine; the encoder as a
whole takes part in the same rounds, and "rest" is what the parts leave of it. With `--train` the
times are those of the forward and the backward pass. The share of the matmuls is the least that any
encoder made of them could take. Prints a table.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from speed_bert_jax import MINILM
from timed_runs import markdown

from bert_jax.families import bert
from bert_jax.inference.memory import keep_freed_memory
from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.config import EncoderConfig
from bert_jax.models.dropout import ElementIndices, dropped
from bert_jax.models.encoder import Encoder, cast_layer_kernels, rows_in_cache
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.models.kernels.matmul import affine
from bert_jax.models.kernels.table import select_kernel
from bert_jax.models.layers import activation, layer_norm
from bert_jax.models.packed_rows import Tokens

# Steps of one turn that count.
_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a layer.

    Attributes:
        name: what it computes.
        times: how often a layer does it.
        function: takes the operands.
        shapes: shapes of the operands that are activations.
        parameters: shapes of the operands that are parameters.
        flops: of its matmuls, in the forward pass.
    """

    name: str
    times: int
    function: Callable[..., jax.Array]
    shapes: Sequence[tuple[int, ...]]
    parameters: Sequence[tuple[int, ...]] = ()
    flops: int = 0


def config_of(size: str) -> EncoderConfig:
    """The architecture of a size of BERT, or of all-MiniLM-L6-v2."""
    if size == "minilm":
        return bert.FAMILY.new_config("base", **MINILM)
    return bert.FAMILY.new_config(size)


def parts_of(
    config: EncoderConfig, execution: Execution, rows: int, length: int, *, train: bool
) -> list[Part]:
    """The parts of a layer for [rows, length] tokens."""
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    tokens, rate = rows * length, config.hidden_dropout_prob
    hidden, of_heads = (tokens, width), (rows, heads, length, config.head_dim)
    ids = jnp.ones((rows, length), jnp.int32)
    of_rows = Tokens.in_batch_order(ids[:, :1], ids)
    attention_rate = config.attention_probs_dropout_prob if train else 0.0
    key = jnp.array([7, 11], jnp.uint32)
    norm = layer_norm(config, execution, "norm")
    scale = {"params": {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}}

    def attend(query: jax.Array, key_: jax.Array, value: jax.Array) -> jax.Array:
        dropout = of_rows.dropout(key, heads, attention_rate) if attention_rate else None
        mask, factor = of_rows.mask.for_heads(), config.attention_scale
        inputs = AttentionInputs(query, key_, value, mask, factor, dropout=dropout)
        kernel = select_kernel(execution.attention, jax.default_backend(), inputs)
        return kernel.function(inputs)

    def add_and_norm(hidden: jax.Array, output: jax.Array) -> jax.Array:
        normed: Any = norm.apply(scale, hidden + output)
        return normed

    def product(name: str, times: int, inputs: int, outputs: int) -> Part:
        return Part(
            f"matmul, {name}",
            times,
            lambda left, right, bias: affine(1, left, right, bias),
            [(tokens, inputs)],
            [(inputs, outputs), (outputs,)],
            flops=2 * tokens * inputs * outputs,
        )

    def drop(values: jax.Array) -> jax.Array:
        return dropped(rate, values, key, ElementIndices.of_vectors(jnp.arange(tokens), width))

    parts = [
        product("query, key, value, output", 4, width, width),
        product("intermediate", 1, width, inner),
        product("output of it", 1, inner, width),
        Part(
            "attention",
            1,
            attend,
            [of_heads] * 3,
            flops=4 * tokens * length * width,
        ),
        Part("GELU", 1, activation(config.hidden_act), [(tokens, inner)]),
        Part("sum and LayerNorm", 2, add_and_norm, [hidden, hidden]),
    ]
    return [*parts, Part("dropout", 2, drop, [hidden])] if train else parts


def as_step(
    function: Callable[..., jax.Array], operands: Sequence[Any], *, train: bool
) -> Callable[[], Any]:
    """Computes a function, in training with the gradients for its operands."""

    def both(*operands: Any) -> Any:
        output, backward = jax.vjp(function, *operands)
        return output, backward(output)

    run = jax.jit(both if train else function)
    return lambda: jax.block_until_ready(run(*operands))


def step_of_part(part: Part, execution: Execution, *, train: bool) -> Callable[[], Any]:
    """One time of a part, on random operands."""
    generator = np.random.default_rng(0)
    # Inference converts the parameters beforehand.
    dtypes = [execution.dtype] * len(part.shapes)
    dtypes += ["float32" if train else execution.dtype] * len(part.parameters)
    shapes = [*part.shapes, *part.parameters]
    operands = [
        jnp.asarray(generator.standard_normal(shape, np.float32), dtype)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    return as_step(part.function, operands, train=train)


def step_of_encoder(
    config: EncoderConfig, execution: Execution, rows: int, length: int, *, train: bool
) -> Callable[[], Any]:
    """The encoder as a whole, with dropout in training."""
    encoder = Encoder(config, execution, add_pooling_layer=False)
    ids = np.random.default_rng(0).integers(1000, 30000, (rows, length)).astype(np.int32)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    params = jax.jit(encoder.init)(jax.random.key(0), **inputs)
    if not train:  # as in prediction
        params = cast_layer_kernels(params, dtype=execution.dtype)
    rngs = {"dropout": jax.random.key(1)} if train else None

    def run(params: Any) -> jax.Array:
        output: Any = encoder.apply(params, **inputs, deterministic=not train, rngs=rngs)
        return output.last_hidden_state

    return as_step(run, [params], train=train)


def medians(steps: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds of each step, the median over rounds in which all take a turn.

    The first step of a turn does not count: it reads its operands from memory, where an encoder has
    them in the cache.
    """
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for mine, step in zip(times, steps, strict=True):
            step()
            for _ in range(_STEPS):
                began = time.perf_counter()
                step()
                mine.append(time.perf_counter() - began)
    return [statistics.median(mine) for mine in times]


def table(
    config: EncoderConfig,
    execution: Execution,
    batch: int,
    length: int,
    rounds: int,
    *,
    train: bool,
) -> str:
    """The parts of the encoder as a table."""
    # Inference on a CPU computes some rows at a time, and so do the parts.
    rows = batch if train else rows_in_cache(execution, batch, length)
    parts = parts_of(config, execution, rows, length, train=train)
    steps = [step_of_part(part, execution, train=train) for part in parts]
    whole = step_of_encoder(config, execution, batch, length, train=train)
    *seconds, total = medians([*steps, whole], rounds)
    repeats = config.num_hidden_layers * batch // rows
    lines, rest = [], total
    for part, each in zip(parts, seconds, strict=True):
        all_times = repeats * part.times * each
        rest -= all_times
        flops = part.flops * (3 if train else 1)
        speed = f"{flops / each / 1e9:.0f}" if flops else ""
        lines.append([part.name, f"{1e3 * all_times:.0f}", f"{all_times / total:.0%}", speed])
    lines.append(["rest", f"{1e3 * rest:.0f}", f"{rest / total:.0%}", ""])
    lines.append(["encoder", f"{1e3 * total:.0f}", "100%", ""])
    return markdown(["part", "ms", "share", "GFLOP/s"], lines, texts=1)


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="minilm", choices=["minilm", *bert.SIZES])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--train", action="store_true", help="forward and backward pass")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    keep_freed_memory()  # as `bert_jax.load` does
    execution = resolve_execution(options.dtype)
    print(
        table(
            config_of(options.size),
            execution,
            options.batch,
            options.length,
            options.rounds,
            train=options.train,
        ),
        end="",
    )


if __name__ == "__main__":
    main()
