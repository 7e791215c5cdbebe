"""`bert-jax parity`: differences from transformers, layer by layer."""

import argparse
import json

from bert_jax.cli.common import Parser
from bert_jax.process import DIFFERS, show

SUMMARY = "differences from transformers, layer by layer (needs PyTorch)"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    parser.add_argument("--model", required=True, metavar="DIR", help="model directory or hub id")
    parser.add_argument(
        "--reference", metavar="DIR", help="model for transformers (default: the same DIR)"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")


def run(options: argparse.Namespace) -> int:
    """Compares two models; exit code 1 means that they differ."""
    from bert_jax.parity.compare import compare

    report = compare(options.model, options.reference)
    show(json.dumps(report.as_dict()) if options.json else report.as_table())
    return 0 if report.agrees else DIFFERS
