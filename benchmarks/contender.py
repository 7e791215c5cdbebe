"""The process of a contender: prepares its work once, then does the steps that it is asked for.

    python -m benchmarks.contender '{"setup": "benchmarks.peers:infer", "options": {…}}'

A line of its input has the numbers of a round and of steps; the answer is a line of JSON, a list
with an object for each step. Only the standard library is imported here, so that a contender may
run in another environment, with other libraries than bert_jax.
"""

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Step = Callable[[int], Any]
LIBRARIES = ("jax", "flax", "tensorflow", "tokenizers", "torch", "transformers",
             "sentence_transformers", "onnxruntime", "openvino", "faiss")  # fmt: skip


def timed(step: Step, number: int) -> dict[str, Any]:
    """Wall-clock and processor seconds of a step, and its figures, which may replace these."""

    def clocks() -> tuple[float, float]:
        # The processor's also of the processes that were started and awaited.
        return time.perf_counter(), time.process_time() + sum(os.times()[2:4])

    before = clocks()
    figures = step(number)
    seconds, used = (end - start for start, end in zip(before, clocks(), strict=True))
    return {"seconds": seconds, "processor_seconds": used, **(figures or {})}


def main() -> None:
    """Prepares the work and answers; the first answer has the versions of the libraries."""
    # What libraries print goes where errors go; only the answers go to stdout.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = json.loads(sys.argv[1])
    module, _, name = spec["setup"].partition(":")
    step = getattr(importlib.import_module(module), name)(argparse.Namespace(**spec["options"]))
    loaded = {name: sys.modules[name] for name in LIBRARIES if name in sys.modules}
    versions = {name: getattr(module, "__version__", "") for name, module in loaded.items()}
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        number, count = map(int, line.split())
        results = [timed(step, number) for _ in range(count)]
        print(json.dumps(results), file=answers, flush=True)


if __name__ == "__main__":
    main()
