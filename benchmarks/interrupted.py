"""`bert-jax index`, killed at three points, against the same command without interruption."""

import argparse
import contextlib
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.contender import Step
from benchmarks.samples import passages

KILLS = 3  # each after an equal share of the time of the whole command


def index(options: argparse.Namespace) -> Step:
    """Counts the files that differ."""
    source = passages(options)["passages_file"]
    whole, killed = (Path(options.output, "runs", f"{options.name}-{one}") for one in "ab")

    def ended(directory: Path, after: float | None = None) -> float:
        """Seconds of the command, which is killed `after` some."""
        words = ["index", "--model", options.model, "--input", source, "--output", str(directory)]
        words += ["--precision", options.precision, "--max-length", str(options.length)]
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([sys.executable, "-m", "bert_jax", *words], timeout=after, check=True)
        return time.monotonic() - began

    def step(number: int) -> dict[str, float]:
        for directory in (whole, killed):
            shutil.rmtree(directory, ignore_errors=True)
        seconds = ended(whole)
        for _ in range(KILLS):
            ended(killed, seconds / (KILLS + 1))
        ended(killed)
        first, second = digests(whole), digests(killed)
        differing = sum(first.get(name) != second.get(name) for name in first | second)
        return {"files": len(first), "differing files": differing}

    return step


def digests(directory: Path) -> dict[str, str]:
    """The digest of each file below a directory."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
