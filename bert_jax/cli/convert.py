"""`bert-jax convert`: files of Google, AllenNLP or Hugging Face → model directory, or Google's."""

import argparse
from pathlib import Path

from bert_jax.cli.common import Parser, directory
from bert_jax.process import show

SUMMARY = "Google's, AllenNLP's or Hugging Face's files → model directory, or Google's"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--input", required=True, metavar="DIR_OR_CKPT", help="a directory, checkpoint or hub id")
    add("--output", type=directory, required=True, metavar="DIR")
    add("--task", metavar="NAME", help="task of the result, such as classification")
    add(
        "--to",
        metavar="WHAT",
        default="huggingface",
        help="format of the result, huggingface or google; or a family for longer texts",
    )
    add("--hidden-act", metavar="NAME", help="replaces hidden_act of config.json")
    add("--add-words", type=Path, metavar="FILE", help="words to add, one per line")
    add(
        "--add-markers",
        type=Path,
        metavar="FILE",
        help="words such as [E1] to add, one per line, that are matched before text is split",
    )
    add(
        "--keep-layers",
        type=_layers,
        metavar="N or N,N",
        help="layers that stay, by number from 0; or how many, spread evenly",
    )
    add(
        "--pooling",
        metavar="HOW",
        help="an encoder of vectors, with files of sentence-transformers: mean, max, cls, …",
    )
    add("--similarity", metavar="HOW", help="of its vectors: cosine, dot, euclidean or manhattan")
    add(
        "--query-model",
        metavar="DIR",
        help="encodes queries, and --input all other texts: the result has both encoders",
    )
    add("--route", metavar="NAME", help="of two encoders in --input this one: query or document")
    add(
        "--positions",
        type=int,
        metavar="N",
        help="new length of the position table; of a family for longer texts, by default its own",
    )
    add(
        "--attention-window",
        type=int,
        metavar="W",
        help="of a family for longer texts: a token sees W / 2 tokens on each side",
    )


def _layers(text: str) -> int | tuple[int, ...]:
    numbers = tuple(map(int, text.split(",")))
    return numbers if "," in text else numbers[0]


def run(options: argparse.Namespace) -> int:
    """Converts a model; prints the result."""
    from bert_jax.inference.loading import convert

    model = convert(
        options.input,
        options.output,
        task=options.task,
        to=options.to,
        hidden_act=options.hidden_act,
        words=options.add_words,
        markers=options.add_markers,
        positions=options.positions,
        attention_window=options.attention_window,
        keep_layers=options.keep_layers,
        pooling=options.pooling,
        similarity=options.similarity,
        query_model=options.query_model,
        route=options.route,
    )
    show(f"{options.output}: {model.description.class_name}, {model.report}")
    return 0
