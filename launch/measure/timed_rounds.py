"""Processes that do a step of work again and again, in turns, so that noise hits all alike.

A contender is a process that prepares its work, does it once, and then does as many steps as each
line of its input says; between its turns it waits. Imports nothing but Python's own library, so
that contenders may live in other environments.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def serve(step: Callable[[], Any], repeats: int = 1) -> None:
    """A contender's side: does as many steps as requested, and prints the seconds of each as JSON.

    Args:
        step: does the work, to its end.
        repeats: how often it is done for each number that is printed, their mean. What is made
            ahead of time wants many: a queue fills while the others have their turns.
    """
    # What libraries print goes where errors go; only the answers go to stdout.
    answers, sys.stdout = sys.stdout, sys.stderr

    def seconds(count: int) -> list[float]:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            for _ in range(repeats):
                step()
            times.append((time.perf_counter() - began) / repeats)
        return times

    (first,) = seconds(1)
    print(json.dumps(first), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(seconds(int(line))), file=answers, flush=True)


# The memory settings of `bert-jax`; here all contenders have them.
MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"
    ":glibc.malloc.mmap_threshold=68719476736"
    ":glibc.malloc.trim_threshold=68719476736"
}


class Contender:
    """The driver's side of a process that serves.

    Attributes:
        name: of the contender.
        log: what it prints besides.
        first: seconds of its first step, compiling included; None if it cannot run here.
        rounds: the median step of each of its turns, in seconds.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        """Starts it and waits until it has done its first step."""
        self.name = name
        self.log = log
        self.rounds: list[float] = []
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**MEMORY, **os.environ},
            )
        self.first: float | None = self._answer()

    def take_turn(self, steps: int) -> bool:
        """Has it do some steps; False if it ended instead."""
        assert self._process.stdin is not None
        # To write to a process that is gone is an error, to hear nothing from it is none.
        with contextlib.suppress(BrokenPipeError):
            print(steps, file=self._process.stdin, flush=True)
        seconds = self._answer()
        if seconds is None:
            return False
        self.rounds.append(statistics.median(seconds))
        return True

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None


def with_spread(ratio: Mapping[str, float]) -> str:
    """What `ratios` returns, as `1.05 (0.98–1.10)`."""
    return f"{ratio['median']:.2f} ({ratio['least']:.2f}–{ratio['greatest']:.2f})"


def ratios(reference: Sequence[float], other: Sequence[float]) -> Mapping[str, float]:
    """How many times as long the other took, round by round: median, least and greatest."""
    quotients = [long / short for short, long in zip(reference, other, strict=True)]
    return {
        "median": statistics.median(quotients),
        "least": min(quotients),
        "greatest": max(quotients),
    }
