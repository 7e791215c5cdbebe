"""The attention kernels of a platform: times, and parity with float32 on the CPU."""

import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.benchmarks import Timing, time_steps
from bert_jax.models.attention_inputs import AttentionInputs
from bert_jax.models.kernels import Kernel
from bert_jax.models.kernels.definition import attention
from bert_jax.models.kernels.table import KERNELS
from bert_jax.models.packed_rows import Tokens

ROWS, HEADS, WIDTH = 3, 4, 64
# Relative to the greatest value of the output or gradient, as in tests/models/test_kernels.py.
LIMITS = {"float32": 2e-5, "bfloat16": 3e-2}
RATE = 0.1
KEY = np.array([7, 11], np.uint32)
# Calls of a kernel in one program, so that starting it does not count.
_REPEATS = 10


def kernels_of(platform: str) -> list[Kernel]:
    """The kernels that run on a platform."""
    return [kernel for kernel in KERNELS if kernel.runs_on(platform)]


def tokens_of(kind: str, rows: int, length: int) -> Tokens:
    """The tokens of rows with padding at their ends, or of rows that each hold several texts."""
    positions = np.arange(length)
    if kind == "packed":
        starts = np.linspace(length // 3, length // 2, rows).astype(int)[:, None]
        ids = np.where(positions >= length - 3, 0, positions // starts + 1).astype(np.int32)
        return Tokens.in_batch_order(jnp.asarray(ids), jnp.asarray(ids))
    lengths = np.linspace(length // 2, length, rows).astype(int)[:, None]
    is_token = jnp.asarray((positions < lengths).astype(np.int32))
    return Tokens.in_batch_order(jnp.ones((rows, 1), jnp.int32), is_token)


def inputs_of(tokens: Tokens, rate: float, query: Any, key: Any, value: Any) -> AttentionInputs:
    """The inputs of a kernel."""
    dropout = tokens.dropout(jnp.asarray(KEY), query.shape[1], rate) if rate else None
    return AttentionInputs(query, key, value, tokens.mask.for_heads(), WIDTH**-0.5, dropout=dropout)


def computes(kernel: Kernel, inputs: AttentionInputs) -> bool:
    """Whether it can compute the inputs, also where the table has a faster kernel."""
    return inputs.query.shape[2] % kernel.length_multiple == 0 and kernel.accepts(inputs)


def output_and_gradients(
    function: Callable[..., jax.Array], operands: Any, tokens: Tokens, rate: float
) -> list[np.ndarray]:
    """The output, and the gradients for query, key and value, in float32."""

    @jax.jit
    def run(query: Any, key: Any, value: Any, d_output: Any, tokens: Any) -> Any:
        def attend(*qkv: Any) -> jax.Array:
            return function(inputs_of(tokens, rate, *qkv))

        output, backward = jax.vjp(attend, query, key, value)
        return output, *backward(d_output)

    return [np.asarray(array, np.float32) for array in run(*operands, tokens)]


def parities(lengths: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """The greatest error of each kernel in each of its calls, see `LIMITS`."""
    device, cpu = jax.devices()[0], jax.devices("cpu")[0]
    cases = [("padding", 0.0), ("packed", 0.0), ("padding", RATE)]
    for length in lengths:
        shape = (4, ROWS, HEADS, length, WIDTH)
        drawn = np.random.default_rng(length).normal(size=shape)
        for dtype, (kind, rate) in [(dtype, case) for dtype in LIMITS for case in cases]:
            rounded = [array.astype(jnp.dtype(dtype)) for array in drawn]
            with jax.default_device(cpu):
                tokens = tokens_of(kind, ROWS, length)
                exact = [array.astype(np.float32) for array in rounded]
                truths = output_and_gradients(attention, exact, tokens, rate)
            for kernel in kernels_of(device.platform):
                if not computes(kernel, inputs_of(tokens, rate, *rounded[:3])):
                    continue
                # TensorFloat-32 and single bfloat16 passes are choices of the device, not errors.
                with jax.default_matmul_precision("highest"):
                    operands, moved = jax.device_put((rounded, tokens), device)
                    found = output_and_gradients(kernel.function, operands, moved, rate)
                errors = [
                    float(abs(value - truth).max() / abs(truth).max())
                    for value, truth in zip(found, truths, strict=True)
                ]
                yield {
                    "kernel": kernel.name,
                    "length": length,
                    "dtype": dtype,
                    "rows": kind,
                    "dropout": rate,
                    "forward": errors[0],
                    "gradient": max(errors[1:]),
                }


def times(
    length: int, tokens: int, steps: int, dtype: str = "bfloat16"
) -> Iterator[dict[str, Any]]:
    """Milliseconds of each kernel for the heads of BERT-base, without and with gradients."""
    platform, heads = jax.devices()[0].platform, 12
    rows = max(1, tokens // length)
    shape = (3, rows, heads, length, WIDTH)
    drawn = np.random.default_rng(0).normal(size=shape)
    operands = [jax.device_put(array.astype(jnp.dtype(dtype))) for array in drawn]
    for kind in ("padding", "packed"):
        texts = jax.device_put(tokens_of(kind, rows, length))
        for kernel in kernels_of(platform):
            if not computes(kernel, inputs_of(texts, 0.0, *operands)):
                continue
            of_kernel: dict[str, Any] = {"kernel": kernel.name, "length": length, "rows": kind}
            for name, run in (("forward", _forward), ("training", _training)):
                timing = _timing(run, steps, kernel.function, *operands, texts)
                each = [1e3 * seconds / _REPEATS for seconds in timing.steps]
                of_kernel[name] = statistics.median(each)
                of_kernel[f"{name}_spread"] = [min(each), max(each)]
            yield of_kernel


def _timing(run: Callable[..., Any], steps: int, function: Any, *inputs: Any) -> Timing:
    timed = functools.partial(jax.jit(run, static_argnums=0), function, *inputs)
    return time_steps(lambda _: timed(), steps, warmup=2)


def _forward(function: Any, query: Any, key: Any, value: Any, tokens: Any) -> jax.Array:
    """Calls that follow one another."""

    def again(query: jax.Array, _: None) -> tuple[jax.Array, None]:
        output = function(inputs_of(tokens, 0.0, query, key, value))
        return query + (1e-3 * output).astype(query.dtype), None

    return jax.lax.scan(again, query, None, length=_REPEATS)[0]


def _training(function: Any, query: Any, key: Any, value: Any, tokens: Any) -> Any:
    """Calls with their gradients that follow one another."""

    def again(inputs: Any, _: None) -> tuple[Any, None]:
        output, backward = jax.vjp(lambda *qkv: function(inputs_of(tokens, 0.0, *qkv)), *inputs)
        gradients = backward(output)
        return tuple(
            x + (1e-3 * d).astype(x.dtype) for x, d in zip(inputs, gradients, strict=True)
        ), None

    return jax.lax.scan(again, (query, key, value), None, length=_REPEATS)[0]
