"""`bert-jax predict`: a model's predictions for a file, row by row."""

import argparse
import contextlib
from typing import Any

from bert_jax.cli.common import Parser, add_option, local_mesh, say_written, values_of
from bert_jax.errors import counted

SUMMARY = "a model's answers to a file, row by row"

# The options of tasks by group: flag, name of the value, its type, help. Each is a field of
# this name of a task's options, which have the default.
_Options = tuple[tuple[str, str, type, str], ...]
_BATCHES: _Options = (
    ("--batch-size", "N", int, "rows computed together"),
    ("--max-length", "N", int, "maximum tokens of a row; longer texts are cut"),
)
_INPUT: _Options = (
    (
        *("--input-format", "NAME", str),
        "text, jsonl, tsv, csv, conll, squad or glue:TASK (default: by the file extension)",
    ),
    (
        *("--text-column", "NAME", str),
        "column or key of the texts (default: a usual name, as text or sentence1)",
    ),
    ("--pair-column", "NAME", str, "column or key of their pairs"),
    ("--label-column", "NAME", str, "column or key of right answers, which the output keeps"),
    ("--id-column", "NAME", str, "column or key of the ids"),
    ("--question-column", "NAME", str, "column or key of the questions"),
    ("--passage-column", "NAME", str, "column or key of the passages"),
    (
        *("--keep-columns", "NAME,NAME", str),
        "columns of the output (default: in JSON lines all, in a table the id)",
    ),
    ("--quotes", "HOW", str, "quotation marks in TSV: auto (default), none or csv"),
    ("--no-header", "", bool, "the table has no header line"),
    (
        *("--bad-rows", "HOW", str),
        "rows that cannot be read or predicted: error (default), skip, or mark, which writes why",
    ),
    ("--word-column", "N", int, "column of the words in CoNLL files, from 0"),
    ("--separator", "tab", str, "separator of CoNLL columns, if words contain spaces"),
    ("--comments", "MARK", str, "prefix of comment lines in CoNLL files"),
)
_ANSWERS: _Options = (
    (
        *("--output-format", "NAME", str),
        "jsonl; glue (classification), conll or doccano (tagging), squad (question_answering); "
        "default: by the file extension, .tsv, .conll or .txt, .json",
    ),
    (
        *("--top-k", "N", int),
        "answers per mask (default 5) or question (default 1); tokens to sample from (all)",
    ),
    ("--null-threshold", "X", float, "score margin above which no answer is returned"),
    ("--window-step", "N", int, "tokens between windows (default 128)"),
    ("--answer-length", "N", int, "maximum tokens of an answer (default 30)"),
    (
        *("--pooling", "HOW", str),
        "pooling of vectors: mean, max, cls, pooler, …, or several with commas (default: the "
        "model's)",
    ),
    ("--normalize", "", bool, "scale vectors to length 1, or not (default: as the model says)"),
    ("--prompt", "NAME", str, "the model's prompt of this name, or a text to put before"),
    ("--raw-scores", "", bool, "a classifier's logits, without an activation"),
    ("--layers", "N,N", str, "layers: 0 the embeddings, -1 the last layer"),
    ("--combine", "HOW", str, "how layers are combined: sum, mean or concatenate"),
)
_GENERATION: _Options = (
    ("--max-new-tokens", "N", int, "maximum tokens of a generated text (default: the model's, 64)"),
    ("--num-beams", "N", int, "beams of a beam search (default: the model's, 1)"),
    ("--length-penalty", "X", float, "above 0: longer texts (default: the model's, 1)"),
    ("--temperature", "X", float, "above 0: tokens are sampled (default: the model's, 0)"),
    ("--top-p", "X", float, "sample the best tokens of this probability (default: all)"),
    ("--num-return-sequences", "N", int, "generated texts for each text (default 1)"),
    ("--seed", "N", int, "seed of the samples (default 0)"),
)
# Fields named differently from their flags, and the actions of flags without a value.
_FIELDS = {"--input-format": "format", "--no-header": "header"}
_SWITCHES: dict[str, Any] = {
    "--no-header": "store_false",
    "--raw-scores": "store_true",
    "--normalize": argparse.BooleanOptionalAction,
}


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb; `task_options` lists the options that a task reads."""
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="model directory or hub id")
    add(
        "--task",
        metavar="NAME",
        help="classification, tagging, question_answering, multiple_choice, similarity, embed, "
        "fill_mask, generate, alignments, hidden_states, attentions, image_classification, "
        "attention_rollout (default: by the model's head)",
    )
    add("--input", required=True, metavar="FILE", help="- is stdin, answered line by line")
    add("--output", required=True, metavar="FILE", help="- is stdout")
    add("--precision", default="float32", help="float32 (default), bfloat16, or auto")
    groups = (
        (parser, _BATCHES),
        (parser.add_argument_group("how the input is read"), _INPUT),
        (parser.add_argument_group("answers"), _ANSWERS),
        (parser.add_argument_group("generated texts (further options: --option)"), _GENERATION),
    )
    names = []
    for group, options in groups:
        for flag, metavar, kind, what in options:
            how = (
                {"action": _SWITCHES[flag]} if kind is bool else {"metavar": metavar, "type": kind}
            )
            dest = _FIELDS.get(flag, flag.removeprefix("--").replace("-", "_"))
            names.append(group.add_argument(flag, dest=dest, default=None, help=what, **how).dest)
    add_option(parser, "an option of the task that has no flag")
    parser.set_defaults(task_options=names)


def run(options: argparse.Namespace) -> int:
    """Predicts a file; prints the number of records to stderr."""
    from bert_jax.data.readers.lines import may_wait
    from bert_jax.inference.loading import load
    from bert_jax.inference.predict import check_request, predict
    from bert_jax.sharding.stopping import StopSignals

    read = {name: getattr(options, name) for name in options.task_options}
    values = {name: value for name, value in read.items() if value is not None}
    values = values_of(options, values)
    check_request(options.task, options.input, options.output, values)
    # Each device has the whole model and predicts its part of every batch.
    mesh = local_mesh()
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
    say_written(options.output, counted(count, "records"))
    return 0
