"""Contenders of `bert-jax serve`: many clients or one, a queue that is full, long use."""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.contender import Step
from benchmarks.load import Server, measured, put_load
from benchmarks.ours import model_path
from benchmarks.texts import requests

# A queue that many clients fill: a round has four batches.
SMALL = ("--batch-size=2", "--max-waiting=8", "--max-texts=8")
_RETRY_SECONDS = 0.1
# The load of a soak is interrupted so often to see its memory; the first part warms up.
_PARTS = 40


def start(options: argparse.Namespace, *more: str) -> Server:
    """Starts `bert-jax serve` with the model, length and precision of the options."""
    words = ("serve", "--port=0", "--no-access-log", "--warm-up=embed")
    of_model = (f"--model={model_path(options)}", f"--precision={options.dtype}")
    more = (f"--max-length={options.length}", *more)
    log = Path(options.output, f"{options.name}-{options.contender}-server.log")
    return Server([sys.executable, "-m", "bert_jax", *words, *of_model, *more], log)


def clients(options: argparse.Namespace) -> Step:
    """Vectors for many clients at the same time; `one_client`: for one."""
    server, texts = start(options), requests(options)
    count = 1 if options.contender == "one_client" else options.clients
    return lambda number: measured(server, texts, options, count)


def overload(options: argparse.Namespace) -> Step:
    """More clients than the queue takes, which retry at once; then one."""
    server, texts = start(options, *SMALL), requests(options)

    def step(number: int) -> dict[str, float]:
        url = f"{server.address}/embed"
        outcome, begun = put_load(url, texts, options.clients, options.seconds), time.perf_counter()
        while not put_load(url, texts, 1, _RETRY_SECONDS).answered:
            pass
        recovery, refused = time.perf_counter() - begun, outcome.statuses[429]
        figures = {"answered": outcome.answered, "refused": refused, "recovery s": recovery}
        return figures | {"not told when": refused - outcome.told_when} | outcome.figures()

    return step


def soak(options: argparse.Namespace) -> Step:
    """Many clients for a long time, and the resident memory of the server."""
    server, texts = start(options), requests(options)
    url, log = f"{server.address}/embed", Path(options.output, f"{options.name}-memory.tsv")

    def step(number: int) -> dict[str, float]:
        begun, lines, memory = time.perf_counter(), ["seconds\tMiB"], []
        errors = lost = answered = 0
        for _ in range(_PARTS):
            part = put_load(url, texts, options.clients, options.seconds / _PARTS)
            errors, lost = errors + part.errors, lost + part.lost
            answered += part.answered
            memory.append(server.resident_mebibytes)
            lines.append(f"{time.perf_counter() - begun:.0f}\t{memory[-1]:.1f}")
            log.write_text("\n".join(lines) + "\n", encoding="utf-8")
        figures = {"requests": answered, "errors": errors, "lost": lost, "MiB": memory[-1]}
        return figures | {"growth in %": growth(memory)}

    return step


def growth(sizes: Sequence[float]) -> float:
    """Growth from the first quarter without the first size to the last quarter, in percent.

    Of both quarters, the median counts.
    """
    quarter = len(sizes) // 4
    first, last = statistics.median(sizes[1 : quarter + 1]), statistics.median(sizes[-quarter:])
    return 100 * (last / first - 1)
