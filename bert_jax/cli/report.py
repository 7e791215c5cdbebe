"""`bert-jax report`: training runs side by side, as one HTML page."""

import argparse

from bert_jax.cli.common import Parser, directory, say_written
from bert_jax.errors import counted

SUMMARY = "training runs side by side, as one HTML page"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("runs", nargs="+", type=directory, metavar="RUN", help="work directory of a training")
    add("--output", required=True, metavar="FILE", help="the page, as report.html; - is stdout")


def run(options: argparse.Namespace) -> int:
    """Writes the report."""
    from bert_jax.data.outputs import check_output
    from bert_jax.reports import report

    check_output(options.output, [])
    report(options.runs).save(options.output)
    count = len(options.runs)
    say_written(options.output, counted(count, "runs"))
    return 0
