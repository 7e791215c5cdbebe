"""`bert-jax export`: run → model directory."""

import argparse

from bert_jax.cli.common import Parser, add_hosts, directory, on_all_hosts
from bert_jax.process import say, show

SUMMARY = "run → model directory"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    parser.add_argument("--workdir", type=directory, required=True, metavar="RUN")
    parser.add_argument("--output", type=directory, required=True, metavar="DIR")
    parser.add_argument(
        "--step",
        default="",
        help="latest, best or a number: one checkpoint (default: the run's train.export, or the "
        "mean of its train.average_checkpoints)",
    )
    parser.add_argument(
        "--part",
        default="",
        metavar="NAME",
        help="another model of the run: `generator` of a training with replaced tokens; `document` "
        "of one with two encoders, or `both` in one directory",
    )
    add_hosts(parser)


@on_all_hosts
def run(options: argparse.Namespace) -> int:
    """Writes a checkpoint of a run as a model directory."""
    from bert_jax.experiment.export import export, export_notes

    step = export(options.workdir, options.output, which=options.step, part=options.part)
    show(f"{options.output}: step {step} of {options.workdir}")
    for note in () if options.part else export_notes(options.workdir):
        say(f"warning: {note}")
    return 0
