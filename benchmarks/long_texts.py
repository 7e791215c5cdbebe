"""Time per token and memory of an encoder whose layers have a window, and of one without.

    python -m benchmarks.long_texts --tokens 8192
    python -m benchmarks.long_texts --predict

The first prints a line for each window and each number of tokens of a text. The rows of a batch
have 8,192 tokens together. The time is the processor time of all threads, which other programs
change less than the duration; the memory is what XLA allocates for activations, beside the
parameters. The second predicts texts of 8,192 tokens with a new ModernBERT of the size tiny and
prints the peak of the resident memory of each `bert-jax predict`, one row at a time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.families.family import find_family
from bert_jax.models.encoder import Encoder, init_params
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.process import show
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer

LENGTHS = (1024, 2048, 4096, 8192)
# The family and its fields; W is both sides.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "window 128": ("longformer", {"attention_window": 128}),
    "window 512": ("longformer", {"attention_window": 512}),
    "all tokens": ("roberta", {}),
}
# The heads of the predictions, and the longest rows; of windows all are read.
HEADS = ("classification", "tagging", "question_answering")
ROWS = (512, max(LENGTHS))
_TEXTS = 4


def main() -> None:
    """Measures every kind and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=max(LENGTHS), help="of all rows of a batch")
    parser.add_argument("--size", default="mini", help="of the encoder")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--predict", action="store_true", help="memory of predictions instead")
    options = parser.parse_args()
    if options.predict:
        _predict()
        return
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


def _predict() -> None:
    """Predicts with every head and length of rows."""
    words = [f"w{number}" for number in range(1000)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True))
    family = find_family("modernbert")
    fields = {"vocab_size": len(pieces), "pad_token_id": 0}
    config = family.new_config("tiny", max_position_embeddings=max(LENGTHS), **fields)
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        texts = (
            " ".join(generator.choice(words, max(LENGTHS) - 5).tolist()) for _ in range(_TEXTS)
        )
        rows = [json.dumps({"text": text, "context": text, "question": "w1 w2"}) for text in texts]
        (directory / "texts.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
        for head in HEADS:
            labels = () if head == HEADS[-1] else ("O", "B-A")
            description = ModelDescription(config, head, labels, family=family)
            params = init_params(description.make_module(Execution()), jax.random.key(0))
            model_directory.save(directory / head, description, params, tokenizer)
            for length in ROWS:
                peak = _peak(directory, head, length)
                show(f"{head}, rows of at most {length} tokens: {peak:.0f} MiB")


def _peak(directory: Path, head: str, length: int) -> float:
    """MiB of the most resident memory of a prediction."""
    arguments = {
        "model": directory / head,
        "input": directory / "texts.jsonl",
        "output": directory / f"{head}-{length}.jsonl",
        "batch-size": 1,
        "max-length": length,
    }
    words = [f"--{key}={value}" for key, value in arguments.items()]
    process = subprocess.Popen([sys.executable, "-m", "bert_jax", "predict", *words])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the prediction ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
