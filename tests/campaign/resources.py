"""Runs `bert-jax` in a process of its own and samples its memory and its disk use."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
_INTERVAL = 0.25


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a command needed.

    Attributes:
        code: its exit code.
        error: the last line that it wrote.
        seconds: of the clock.
        memory: bytes of resident memory of it and its children, in equal intervals.
        disk: bytes of a watched directory, in the same intervals.
    """

    code: int
    error: str
    seconds: float
    memory: list[int]
    disk: list[int]

    def memory_between(self, start: float, stop: float) -> int:
        """The greatest memory between two fractions of the time."""
        count = len(self.memory)
        return max(self.memory[int(start * count) : int(stop * count) + 1], default=0)

    def as_json(self) -> dict[str, Any]:
        """Figures, with ten samples of the memory in MiB."""
        count = len(self.memory)
        shown = [self.memory[index * count // 10] >> 20 for index in range(min(10, count))]
        return {
            "seconds": round(self.seconds, 1),
            "peak_mib": max(self.memory, default=0) >> 20,
            "memory_mib": shown,
        }


def run(arguments: list[str], log: Path, watched: Path | None = None) -> Usage:
    """Runs `bert-jax` to its end.

    Args:
        arguments: of the command.
        log: gets what it writes.
        watched: a directory whose size is sampled.
    """
    began = time.perf_counter()
    memory, disk = [], []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bert_jax", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(REPOSITORY)},
        )
        while process.poll() is None:
            memory.append(sum(map(_resident, _descendants(process.pid))))
            if watched is not None:
                disk.append(disk_bytes(watched))
            time.sleep(_INTERVAL)
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1][:300] if lines else ""
    return Usage(process.returncode, last, time.perf_counter() - began, memory, disk)


def disk_bytes(directory: Path) -> int:
    """The bytes of all files below a directory, which may change meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in _descendants(int(child)))]


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
