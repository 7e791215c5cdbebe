"""Measures how soon a command is at work: `import bert_jax`; `bert-jax train`, to its first step.

    python launch/measure/benchmark_start.py --corpus DIR [--rounds 7] [--size tiny]

Each round is a process of its own: `import bert_jax`, and a new run of `configs/pretrain.py`, timed
until the metrics of its first step are written. The runs share a cache of compiled programs that is
empty at first; what counts is the median of the later ones. Prints a table; targets: 1 s, 10 s.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timed_runs import markdown

CONFIG = Path(__file__).parents[2] / "configs" / "pretrain.py"


def seconds_to_import() -> float:
    """Of a new Python that imports bert_jax, Python's own start included."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import bert_jax"], check=True)
    return time.perf_counter() - start


def seconds_to_first_step(config: str, workdir: Path, cache: Path) -> float:
    """Of a new run, which is ended then."""
    command = [sys.executable, "-m", "bert_jax", "train", "--config", config]
    with Path(f"{workdir}.log").open("w+", encoding="utf-8") as log:
        start = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--workdir", str(workdir)],
            stderr=log,
            env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        )
        metrics = workdir / "metrics.jsonl"
        while not (metrics.is_file() and metrics.stat().st_size):
            if process.poll() is not None:
                log.seek(0)
                raise SystemExit(f"{' '.join(command)} ended before its first step:\n{log.read()}")
            time.sleep(0.01)
        seconds = time.perf_counter() - start
        process.kill()
        process.wait()
    return seconds


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="made by `bert-jax prepare`")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    config = f"{CONFIG}:corpus={arguments.corpus.resolve()},size={arguments.size}"
    imports, runs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds + 1):
            imports.append(seconds_to_import())
            workdir = Path(folder, f"run{number}")
            runs.append(seconds_to_first_step(config, workdir, Path(folder, "cache")))
    rows = []
    for label, (first, *others) in (
        ("`import bert_jax`", imports),
        (f"`bert-jax train`, {arguments.size}, to its first step, compiled before", runs),
    ):
        shown = ", ".join(f"{seconds:.2f}" for seconds in others)
        rows.append([label, f"{first:.2f}", f"{statistics.median(others):.2f}", shown])
    print(markdown(["what", "first, s", "median of the others, s", "they, s"], rows), end="")


if __name__ == "__main__":
    main()
