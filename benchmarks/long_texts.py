"""Time per token and memory of an encoder whose layers have a window, and of one without.

    python -m benchmarks.long_texts --tokens 8192

Prints a line for each window and each number of tokens of a text. The rows of a batch have 8,192
tokens together. The time is the processor time of all threads, which other programs change less
than the duration; the memory is what XLA allocates for activations, beside the parameters.
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.families.family import find_family
from bert_jax.models.encoder import Encoder, init_params
from bert_jax.models.execution import resolve_execution
from bert_jax.process import show

LENGTHS = (1024, 2048, 4096, 8192)
# The family and its fields; W is both sides.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "window 128": ("longformer", {"attention_window": 128}),
    "window 512": ("longformer", {"attention_window": 512}),
    "all tokens": ("roberta", {}),
}


def main() -> None:
    """Measures every kind and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=max(LENGTHS), help="of all rows of a batch")
    parser.add_argument("--size", default="mini", help="of the encoder")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for kind, (name, fields) in KINDS.items():
        config = find_family(name).new_config(
            options.size, max_position_embeddings=max(LENGTHS) + 2, vocab_size=1000, **fields
        )
        module = Encoder(config, resolve_execution("float32"), add_pooling_layer=False)
        params = jax.jit(lambda module=module: init_params(module, jax.random.key(0)))()
        for length in LENGTHS:
            times, forward, backward = _measure(module, params, length, options)
            per_token = [1e6 * seconds / options.tokens for seconds in times]
            show(
                f"{kind}, {length} tokens: {min(per_token):.0f} to {max(per_token):.0f} µs per "
                f"token; memory of one row {forward:.0f} MiB, with gradients {backward:.0f} MiB"
            )


def _measure(
    module: Encoder, params: Any, length: int, options: argparse.Namespace
) -> tuple[list[float], float, float]:
    """Seconds of each repetition; MiB of one row, without and with gradients."""

    def states(params: Any, ids: jax.Array) -> jax.Array:
        output: Any = module.apply({"params": params}, ids)
        return output.last_hidden_state

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        return jnp.square(states(params, ids)).sum()

    generator = np.random.default_rng(0)
    ids = generator.integers(4, 1000, (max(1, options.tokens // length), length), np.int32)
    compiled = jax.jit(states).lower(params, ids).compile()
    compiled(params, ids).block_until_ready()
    times = []
    for _ in range(options.repeats):
        start = time.process_time()
        compiled(params, ids).block_until_ready()
        times.append(time.process_time() - start)
    memory = []
    for function in (states, jax.grad(loss)):
        program: Any = jax.jit(function).lower(params, ids[:1]).compile()
        memory.append(program.memory_analysis().temp_size_in_bytes)
    return times, memory[0] / 2**20, memory[1] / 2**20


if __name__ == "__main__":
    main()
