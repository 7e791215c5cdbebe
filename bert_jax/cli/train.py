"""`bert-jax train`: train a run, or several, or continue."""

import argparse
import json

from bert_jax.cli.common import Parser, add_config, add_hosts, directory, on_all_hosts
from bert_jax.process import STOPPED, say

SUMMARY = "train a run, or continue it"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add_config(parser)
    parser.add_argument("--workdir", type=directory, required=True, metavar="RUN")
    parser.add_argument(
        "--sweep",
        nargs="*",
        metavar="KEY=V,V",
        help="one run per combination of values; without keys, the grid of the paper",
    )
    add_hosts(parser)


@on_all_hosts
def run(options: argparse.Namespace) -> int:
    """Trains; prints the metrics on the last line."""
    from bert_jax.config import load_config
    from bert_jax.experiment import Experiment
    from bert_jax.experiment.sweep import parse_grid, sweep, train_seeds
    from bert_jax.sharding.runtime import use_compilation_cache
    from bert_jax.sharding.stopping import Interrupted

    use_compilation_cache()
    config = load_config(options.config, options.overrides)
    try:
        if options.sweep is not None:
            metrics = sweep(config, options.workdir, parse_grid(options.sweep, config))
        elif config.train.seeds:
            metrics = train_seeds(config, options.workdir)
        else:
            metrics = Experiment.from_config(config).train(options.workdir)
    except Interrupted as stop:
        say(f"bert-jax: {stop}; run the same command to continue")
        return STOPPED
    print(json.dumps(metrics))
    return 0
