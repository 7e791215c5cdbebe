"""`bert-jax bench`: the speed of this machine for the work of a config."""

import argparse
import json
from pathlib import Path

from bert_jax.cli.common import Parser, add_config, fields_from
from bert_jax.process import say

SUMMARY = "speed of this machine for the work of a config"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add_config(parser)
    add = parser.add_argument
    add(
        "--work",
        required=True,
        choices=("train", "finetune", "infer", "pipeline"),
        help="work to time",
    )
    add("--steps", type=int, metavar="N", help="number of timed steps (default: 10)")
    add("--profile", type=Path, metavar="DIR", help="write a trace for TensorBoard or Perfetto")
    add(
        "--peak-tflops",
        dest="peak_flops",
        type=teraflops,
        metavar="X",
        help="peak of a device (default: as published)",
    )


def teraflops(text: str) -> float:
    """TFLOP/s as FLOP/s, for argparse."""
    return float(text) * 1e12


def run(options: argparse.Namespace) -> int:
    """Times the work; prints JSON on the last line."""
    from bert_jax.config import load_config
    from bert_jax.experiment import Experiment
    from bert_jax.planning.bench import BenchOptions, as_text
    from bert_jax.sharding.runtime import use_compilation_cache

    use_compilation_cache()
    bench_options = fields_from(BenchOptions, options)
    experiment = Experiment.from_config(load_config(options.config, options.overrides))
    result = experiment.bench(bench_options)
    say(*as_text(result).split("\n"))
    print(json.dumps(result))
    return 0
