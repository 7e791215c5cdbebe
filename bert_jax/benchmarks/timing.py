"""Times of a piece of work that is done again and again."""

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

_TRACED = 3


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of the clock.

    Attributes:
        first: of the first time, with compiling or with whatever else happens once.
        steps: of each later time.
    """

    first: float
    steps: Sequence[float]

    @property
    def median(self) -> float:
        """Of the steps."""
        return statistics.median(self.steps)

    @property
    def once(self) -> float:
        """What the first time took longer."""
        return max(0.0, self.first - self.median)


def time_steps(
    step: Callable[[int], Any], steps: int, *, warmup: int, profile: Path | None = None
) -> Timing:
    """Times a step; each time is from its begin until its result is there.

    Args:
        step: does the work of a number, from 0; what it returns is waited for.
        steps: how many are timed.
        warmup: how many are done before, the first of which is timed, too.
        profile: a directory for a trace of a few further steps.
    """

    def seconds(number: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(step(number))
        return time.perf_counter() - began

    first, *_ = [seconds(number) for number in range(warmup)]
    found = [seconds(number) for number in range(warmup, warmup + steps)]
    if profile is not None:
        with jax.profiler.trace(str(profile), create_perfetto_trace=True):
            for number in range(warmup + steps, warmup + steps + _TRACED):
                seconds(number)
    return Timing(first, found)


def peak_bytes(devices: Sequence[jax.Device]) -> int | None:
    """The most memory that was in use: of the fullest device, on a CPU of this process."""
    if devices[0].platform == "cpu":
        with contextlib.suppress(ImportError):  # not on every system
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return None
    statistics_of = [device.memory_stats() or {} for device in devices]
    found = [one["peak_bytes_in_use"] for one in statistics_of if "peak_bytes_in_use" in one]
    return max(found, default=None)
