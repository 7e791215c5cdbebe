"""The arguments of `bert-jax bench`. Imports nothing heavy."""

import argparse
import dataclasses
from pathlib import Path

from bert_jax.errors import UserError

WORKS = ("train", "finetune", "infer", "pipeline")


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """What is timed.

    Attributes:
        work: "train" or "finetune", the training step of a config; "infer", its encoder forward;
            "pipeline", the making of its batches.
        steps: how many are timed, each by itself.
        profile: a directory for a trace of three more steps, None: no trace.
        peak_flops: of a device, FLOP/s, in place of the published figure.
    """

    work: str
    steps: int = 10
    profile: Path | None = None
    peak_flops: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"--steps {self.steps}: at least 1")
        if self.peak_flops is not None and not self.peak_flops > 0:
            raise UserError(f"--peak-tflops {self.peak_flops / 1e12:g}: it must be above 0")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all arguments of the verb but `--config`."""
    add = parser.add_argument
    add("--work", required=True, choices=WORKS, help="what is timed")
    add("--steps", type=int, default=BenchOptions.steps, metavar="N", help="how many are timed")
    add("--profile", type=Path, metavar="DIR", help="a trace for TensorBoard or Perfetto")
    add("--peak-tflops", type=float, metavar="X", help="of a device (default: as published)")


def bench_options(options: argparse.Namespace) -> BenchOptions:
    """The arguments as they were given.

    Raises:
        UserError: a number is out of range.
    """
    peak = None if options.peak_tflops is None else options.peak_tflops * 1e12
    return BenchOptions(options.work, options.steps, options.profile, peak)
