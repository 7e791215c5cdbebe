"""`bert-jax report`: training runs side by side, as one HTML page."""

import argparse

from bert_jax.cli.common import Parser, directory, say_written
from bert_jax.errors import counted

SUMMARY = "training runs side by side, as one HTML page"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add(
        "runs",
        nargs="+",
        type=directory,
        metavar="RUN",
        help="work directory of a training, or of several: seeds, a sweep",
    )
    add("--output", required=True, metavar="FILE", help="the page, as report.html; - is stdout")


def run(options: argparse.Namespace) -> int:
    """Writes the report."""
    from bert_jax.data.outputs import check_output
    from bert_jax.reports import report, runs_in

    check_output(options.output, [])
    runs = runs_in(options.runs)
    report(runs).save(options.output)
    say_written(options.output, counted(len(runs), "runs"))
    return 0
