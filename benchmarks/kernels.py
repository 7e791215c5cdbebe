"""The attention kernels of the platform: their parity with float32 on the CPU."""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.contender import Step
from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.kernels import KERNELS
from bert_jax.models.kernels.definition import attention
from bert_jax.models.packed_rows import Tokens

KEY = np.array([7, 11], np.uint32)
ROWS, HEADS, WIDTH = 3, 4, 64
DTYPES = ("float32", "bfloat16")
CASES = (("padding", 0.0), ("packed", 0.0), ("padding", 0.1))  # rows and dropout rate


def parity(options: argparse.Namespace) -> Step:
    """The greatest error of outputs and gradients, relative to the greatest of their values."""
    cpu, device, length = jax.devices("cpu")[0], jax.devices()[0], options.length

    def step(number: int) -> dict[str, float]:
        errors: dict[str, float] = {}
        drawn = np.random.default_rng(0).normal(size=(4, ROWS, HEADS, length, WIDTH))
        for (kind, rate), dtype in [(case, dtype) for case in CASES for dtype in DTYPES]:
            rounded = [array.astype(jnp.dtype(dtype)) for array in drawn]
            with jax.default_device(cpu):
                tokens = _tokens(kind, length)
                exact = [array.astype(np.float32) for array in rounded]
                truths = _output_and_gradients(attention, exact, tokens, rate)
            inputs = _inputs(tokens, rate, *rounded[:3])
            for kernel in KERNELS:  # also where the table has a faster one
                is_able = kernel.runs_on(device.platform) and kernel.accepts(inputs)
                if not is_able or length % kernel.length_multiple:
                    continue
                # Single bfloat16 passes and TensorFloat-32 are choices, not errors.
                with jax.default_matmul_precision("highest"):
                    moved, there = jax.device_put((rounded, tokens), device)
                    values = _output_and_gradients(kernel.function, moved, there, rate)
                pairs = zip(values, truths, strict=True)
                each = [abs(value - truth).max() / abs(truth).max() for value, truth in pairs]
                name = f"{kernel.name} {dtype}"
                # NaN is greater than all numbers.
                errors[name] = float(np.max([errors.get(name, 0.0), *each]))
        return errors

    return step


def _output_and_gradients(function: Any, operands: Any, tokens: Tokens, rate: float) -> list[Any]:
    @jax.jit
    def run(query: Any, key: Any, value: Any, d_output: Any, tokens: Any) -> Any:
        def attend(*qkv: Any) -> jax.Array:
            output: jax.Array = function(_inputs(tokens, rate, *qkv))
            return output

        output, backward = jax.vjp(attend, query, key, value)
        return output, *backward(d_output)

    return [np.asarray(array, np.float32) for array in run(*operands, tokens)]


def _inputs(tokens: Tokens, rate: float, query: Any, key: Any, value: Any) -> AttentionInputs:
    dropout = tokens.dropout(jnp.asarray(KEY), HEADS, rate) if rate else None
    return AttentionInputs(query, key, value, tokens.mask.for_heads(), WIDTH**-0.5, dropout=dropout)


def _tokens(kind: str, length: int) -> Tokens:
    """Rows with padding at their ends, or rows that each hold several texts."""
    positions = np.arange(length)
    if kind == "packed":
        starts = np.linspace(length // 3, length // 2, ROWS).astype(int)[:, None]
        ids = np.where(positions >= length - 3, 0, positions // starts + 1).astype(np.int32)
        return Tokens.in_batch_order(jnp.asarray(ids), jnp.asarray(ids))
    lengths = np.linspace(length // 2, length, ROWS).astype(int)[:, None]
    is_token = jnp.asarray((positions < lengths).astype(np.int32))
    return Tokens.in_batch_order(jnp.ones((ROWS, 1), jnp.int32), is_token)
