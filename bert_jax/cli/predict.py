"""`bert-jax predict`: a model's predictions for a file, row by row."""

import argparse
import contextlib

from bert_jax.cli.common import Parser, fields_from
from bert_jax.errors import OptionError
from bert_jax.process import say

SUMMARY = "a model's answers to a file, row by row"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb; most have the name of a field of `PredictOptions`."""
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
    add("--batch-size", type=int, metavar="N", help="rows computed together")
    add("--max-length", type=int, metavar="N", help="maximum tokens of a row; longer texts are cut")

    add = parser.add_argument_group("how the input is read").add_argument
    add(
        "--input-format",
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
        add(f"--{name}-column", metavar="NAME", help=f"column or key of {what}")
    add(
        "--keep-columns",
        metavar="NAME,NAME",
        help="columns that the output has, those of the text included (default: in JSON lines all "
        "others, in a table the id)",
    )
    add("--quotes", metavar="HOW", help="quotation marks in TSV: auto (default), none or csv")
    add("--no-header", dest="header", action="store_false", help="the table has no header line")
    add("--word-column", type=int, metavar="N", help="column of the words in CoNLL files, from 0")
    add("--separator", metavar="tab", help="separator of CoNLL columns, if words contain spaces")
    add("--comments", metavar="MARK", help="prefix of comment lines in CoNLL files")

    add = parser.add_argument_group("answers").add_argument
    add(
        "--output-format",
        metavar="NAME",
        help="jsonl; glue (classification), conll (tagging), squad (question_answering); default: "
        "by the file extension, .tsv, .conll or .txt, .json",
    )
    add(
        "--top-k",
        type=int,
        metavar="N",
        help="answers per mask (default 5) or question (default 1)",
    )
    add(
        "--null-threshold",
        type=float,
        metavar="X",
        help="score margin above which no answer is returned",
    )
    add("--window-step", type=int, metavar="N", help="tokens between windows (default 128)")
    add("--answer-length", type=int, metavar="N", help="maximum tokens of an answer (default 30)")
    add(
        "--pooling",
        metavar="HOW",
        help="pooling of vectors: mean, max, cls, pooler, …, or several with commas (default: that "
        "of the model)",
    )
    add(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="scale vectors to length 1, or not (default: as the model says)",
    )
    add("--prompt", metavar="NAME", help="the model's prompt of this name, or a text to put before")
    add("--raw-scores", action="store_true", help="a classifier's logits, without an activation")
    add("--layers", metavar="N,N", help="layers: 0 the embeddings, -1 the last layer")
    add("--combine", metavar="HOW", help="how layers are combined: sum, mean or concatenate")


def run(options: argparse.Namespace) -> int:
    """Predicts a file; prints the number of records to stderr."""
    import jax

    from bert_jax.data.readers.lines import may_wait
    from bert_jax.inference.loading import load
    from bert_jax.inference.predict import check_request, predict
    from bert_jax.sharding.mesh import MeshShape, make_mesh
    from bert_jax.sharding.runtime import use_compilation_cache
    from bert_jax.sharding.stopping import StopSignals
    from bert_jax.tasks.base.predict_spec import PredictOptions

    use_compilation_cache()
    lists = {"layers": _layers(options.layers), "keep_columns": _names(options.keep_columns)}
    predict_options = fields_from(PredictOptions, options, **lists)
    check_request(options.task, options.input, options.output, predict_options)
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
            predict_options,
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
