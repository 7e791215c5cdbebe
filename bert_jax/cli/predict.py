"""`bert-jax predict`: a model's predictions for a file, row by row."""

import argparse
import contextlib
from typing import Any

from bert_jax.cli.common import Parser
from bert_jax.errors import OptionError
from bert_jax.process import say

SUMMARY = "a model's answers to a file, row by row"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb; those of a task have the names of its options' fields."""
    names: list[str] = []

    def option(*args: Any, **settings: Any) -> None:
        """Adds an option whose default is the one of the task."""
        names.append(group.add_argument(*args, **settings).dest)

    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="model directory or hub id")
    add(
        "--task",
        metavar="NAME",
        help="classification, tagging, question_answering, multiple_choice, similarity, embed, "
        "fill_mask, hidden_states, attentions (default: that of the model's head)",
    )
    add("--input", required=True, metavar="FILE", help="- is stdin, answered line by line")
    add("--output", required=True, metavar="FILE", help="- is stdout")
    add("--precision", default="float32", help="float32 (default), bfloat16, or auto")
    group: Any = parser
    option("--batch-size", type=int, metavar="N", help="rows computed together")
    option(
        "--max-length", type=int, metavar="N", help="maximum tokens of a row; longer texts are cut"
    )

    group = parser.add_argument_group("how the input is read")
    option(
        "--input-format",
        dest="format",
        metavar="NAME",
        help="text, jsonl, tsv, csv, conll, squad or glue:TASK (default: by the file extension)",
    )
    for name, what in (
        ("text", "the texts (default: a usual name, as text or sentence1)"),
        ("pair", "their pairs"),
        ("label", "right answers, which the output keeps"),
        ("id", "the ids"),
        ("question", "the questions"),
        ("passage", "the passages"),
    ):
        option(f"--{name}-column", metavar="NAME", help=f"column or key of {what}")
    option(
        "--keep-columns",
        metavar="NAME,NAME",
        help="columns that the output has, those of the text included (default: in JSON lines all "
        "others, in a table the id)",
    )
    option("--quotes", metavar="HOW", help="quotation marks in TSV: auto (default), none or csv")
    option(
        "--no-header",
        dest="header",
        action="store_false",
        default=None,
        help="the table has no header line",
    )
    option(
        "--word-column", type=int, metavar="N", help="column of the words in CoNLL files, from 0"
    )
    option("--separator", metavar="tab", help="separator of CoNLL columns, if words contain spaces")
    option("--comments", metavar="MARK", help="prefix of comment lines in CoNLL files")

    group = parser.add_argument_group("answers")
    option(
        "--output-format",
        metavar="NAME",
        help="jsonl; glue (classification), conll (tagging), squad (question_answering); default: "
        "by the file extension, .tsv, .conll or .txt, .json",
    )
    option(
        "--top-k",
        type=int,
        metavar="N",
        help="answers per mask (default 5) or question (default 1)",
    )
    option(
        "--null-threshold",
        type=float,
        metavar="X",
        help="score margin above which no answer is returned",
    )
    option("--window-step", type=int, metavar="N", help="tokens between windows (default 128)")
    option(
        "--answer-length", type=int, metavar="N", help="maximum tokens of an answer (default 30)"
    )
    option(
        "--pooling",
        metavar="HOW",
        help="pooling of vectors: mean, max, cls, pooler, …, or several with commas (default: that "
        "of the model)",
    )
    option(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="scale vectors to length 1, or not (default: as the model says)",
    )
    option(
        "--prompt", metavar="NAME", help="the model's prompt of this name, or a text to put before"
    )
    option(
        "--raw-scores",
        action="store_true",
        default=None,
        help="a classifier's logits, without an activation",
    )
    option("--layers", metavar="N,N", help="layers: 0 the embeddings, -1 the last layer")
    option("--combine", metavar="HOW", help="how layers are combined: sum, mean or concatenate")
    parser.set_defaults(task_options=names)


def run(options: argparse.Namespace) -> int:
    """Predicts a file; prints the number of records to stderr."""
    import jax

    from bert_jax.data.readers.lines import may_wait
    from bert_jax.inference.loading import load
    from bert_jax.inference.predict import check_request, predict
    from bert_jax.sharding.mesh import MeshShape, make_mesh
    from bert_jax.sharding.runtime import use_compilation_cache
    from bert_jax.sharding.stopping import StopSignals

    use_compilation_cache()
    options.layers = _layers(options.layers)
    options.keep_columns = _names(options.keep_columns)
    given = {name: getattr(options, name) for name in options.task_options}
    values = {name: value for name, value in given.items() if value is not None}
    check_request(options.task, options.input, options.output, values)
    # Each device has the whole model and predicts its part of every batch.
    mesh = make_mesh(MeshShape(), jax.local_devices())
    model = load(options.model, precision=options.precision, mesh=mesh)
    # Not by an exception, which libraries that call Python may swallow; but nothing else wakes up
    # a process that waits for a line.
    with contextlib.nullcontext() if may_wait(options.input) else StopSignals() as stop:
        count = predict(
            model,
            options.task,
            options.input,
            options.output,
            values,
            stopped=lambda: stop is not None and stop.requested,
        )
    say(f"{options.output}: {count:,} records")
    return 0


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(filter(None, text.split(",")))


def _layers(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(number) for number in text.split(","))
    except ValueError:
        raise OptionError("layers", text, "give whole numbers, such as -4,-3,-2,-1") from None
