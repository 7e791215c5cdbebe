"""`bert-jax rerank`: the results of a search in the order of a model's scores."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.cli.common import (
    Parser,
    add_computing,
    add_option,
    local_mesh,
    open_models,
    say_written,
    values_of,
)
from bert_jax.cli.metrics import Measure, add_judgements, measure_of
from bert_jax.errors import OptionError, UserError, counted
from bert_jax.files.paths import TREC_ENDINGS

if TYPE_CHECKING:
    from bert_jax.inference.reranking import FirstSearch

SUMMARY = "the results of a search in a better order"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="model directory or hub id")
    add("--run", dest="first", metavar="FILE", help="results of a search, a run as of TREC")
    add("--queries", metavar="FILE", help="its queries: a file, or a folder as BEIR's")
    add("--documents", metavar="FILE", help="its documents: a file, or a folder as BEIR's")
    add("--input", metavar="FILE", help="in place of these three: queries with lists of documents")
    add(
        "--output",
        required=True,
        metavar="FILE",
        help=f"a run of TREC ({' or '.join(TREC_ENDINGS)}); else JSON lines, a teacher's scores",
    )
    add("--top-k", type=int, metavar="N", help="results of a query, the others are left out")
    add_judgements(parser)
    add("--raw-scores", action="store_true", help="scores without an activation")
    add_computing(parser, "maximum tokens of a row")
    add_option(parser, "an option of the input that has no flag, such as titles=omit")


def run(options: argparse.Namespace) -> int:
    """Scores the documents; prints the metrics on the last line, if there are judgements."""
    from bert_jax.data.outputs import check_output
    from bert_jax.inference.predict import check_request
    from bert_jax.inference.reranking import FirstSearch, rerank, run_in
    from bert_jax.sharding.stopping import StopSignals

    search_files = (options.queries, options.documents, options.first)
    measure = measure_of(options)
    search_options = (*search_files, options.judgements, options.top_k)
    if options.input and all(value is None for value in search_options):
        source = options.input
    elif all(search_files) and not options.input:
        source = FirstSearch(*search_files, options.top_k, measure.judgements if measure else None)
        if measure:
            _check(measure, source, options.output)
    else:
        raise UserError(
            "give --queries, --documents and --run, with which --top-k and --judgements go; or "
            "--input alone"
        )
    check_request(None, options.input or options.first, options.output)
    values = {name: getattr(options, name) for name in ("raw_scores", "batch_size", "max_length")}
    values = values_of(options, values)
    texts = (options.queries, options.documents, values.get("corpus"), values.get("queries"))
    check_output(options.output, [*texts, options.judgements])
    (model,) = open_models(options, local_mesh(), "model")
    with StopSignals() as stop:
        count = rerank(model, source, options.output, values, lambda: stop.requested)
    say_written(options.output, counted(count, "queries"))
    if measure:
        output = Path(options.output)
        measure.show(run_in(output), output)
    return 0


def _check(measure: Measure, first: "FirstSearch", output: str) -> None:
    """Checks the judgements of the results that are ranked again, see `Measure.check`."""
    from bert_jax.data.outputs import STDOUT
    from bert_jax.data.readers.lines import may_wait

    if output == STDOUT or may_wait(output):
        raise OptionError("output", output, "it is read again for {judgements}; give a file")
    retrieved = {document for scores in first.results.values() for document in scores}
    depth = max(map(len, first.results.values()))
    top_k = min(depth, first.top_k or depth)
    measure.check(first.results, lambda ids: not retrieved.isdisjoint(ids), top_k)
