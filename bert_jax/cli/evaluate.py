"""`bert-jax evaluate`: validation metrics of a run or a model directory."""

import argparse
import json

from bert_jax.cli.common import Parser, add_config, add_hosts, directory, on_all_hosts
from bert_jax.errors import UserError

SUMMARY = "validation metrics as JSON"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add_config(parser, required=False, default="the config of RUN")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--workdir", type=directory, metavar="RUN")
    source.add_argument("--model", type=directory, metavar="DIR", help="needs --config")
    parser.add_argument(
        "--output",
        type=directory,
        metavar="DIR",
        help="directory for predictions and reports (labelled tasks)",
    )
    add_hosts(parser)


@on_all_hosts
def run(options: argparse.Namespace) -> int:
    """Evaluates; prints the metrics on the last line."""
    from bert_jax.config import load_config, override_keys
    from bert_jax.experiment import Experiment
    from bert_jax.experiment.workdir import run_config
    from bert_jax.sharding.runtime import use_compilation_cache

    use_compilation_cache()
    if options.config is not None:
        config = load_config(options.config, options.overrides)
    elif options.workdir is not None:
        config = run_config(options.workdir)
        override_keys(config, options.overrides, source=options.workdir)
    else:
        raise UserError(
            "evaluate --model DIR needs --config FILE, which names the task and its data"
        )
    experiment = Experiment.from_config(config)
    metrics = experiment.evaluate(
        workdir=options.workdir, model=options.model, output=options.output
    )
    print(json.dumps(metrics))
    return 0
