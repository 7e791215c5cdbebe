"""`bert-jax bench`: how fast this machine does the work of a config."""

import argparse
import json
import sys
from pathlib import Path

from bert_jax.cli.common import Parser, add_config, fields_from

SUMMARY = "how fast this machine does the work"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add_config(parser)
    add = parser.add_argument
    add(
        "--work",
        required=True,
        choices=("train", "finetune", "infer", "pipeline"),
        help="what is timed",
    )
    add("--steps", type=int, metavar="N", help="how many are timed (default: 10)")
    add("--profile", type=Path, metavar="DIR", help="a trace for TensorBoard or Perfetto")
    add(
        "--peak-tflops",
        dest="peak_flops",
        type=lambda text: float(text) * 1e12,
        metavar="X",
        help="of a device (default: as published)",
    )


def run(options: argparse.Namespace) -> int:
    """Times the work; JSON on the last line."""
    from bert_jax.benchmarks import BenchOptions, as_text
    from bert_jax.config import load_config
    from bert_jax.experiment import Experiment
    from bert_jax.sharding.runtime import use_compilation_cache

    use_compilation_cache()
    bench_options = fields_from(BenchOptions, options)
    experiment = Experiment.from_config(load_config(options.config, options.overrides))
    result = experiment.bench(bench_options)
    print(as_text(result), file=sys.stderr)
    print(json.dumps(result))
    return 0
