"""`bert-jax convert`: Google's or Hugging Face's files → model directory, or back to Google's."""

import argparse
import signal
from pathlib import Path

from bert_jax.cli.common import Parser, directory

SUMMARY = "Google's or Hugging Face's files → model directory, or back to Google's"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--input", required=True, metavar="DIR_OR_CKPT", help="a directory, checkpoint or hub id")
    add("--output", type=directory, required=True, metavar="DIR")
    add("--task", metavar="NAME", help="the model to make, as classification")
    add("--to", choices=("huggingface", "google"), default="huggingface")
    add("--hidden-act", metavar="NAME", help="in place of the one in config.json")
    add("--add-words", type=Path, metavar="FILE", help="new words, one a line")
    add("--positions", type=int, metavar="N", help="a longer position table")


def run(options: argparse.Namespace) -> int:
    """Converts; prints what was written."""
    from bert_jax.inference.loading import convert

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes a partial directory
    model = convert(
        options.input,
        options.output,
        task=options.task,
        to=options.to,
        hidden_act=options.hidden_act,
        words=options.add_words,
        positions=options.positions,
    )
    print(f"{options.output}: {model.description.class_name}, {model.report}")
    return 0
