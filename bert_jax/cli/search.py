"""`bert-jax search`: the documents of an index that fit queries best."""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.cli.common import (
    Parser,
    add_computing,
    directory,
    fields_from,
    local_mesh,
    open_models,
    say_written,
)
from bert_jax.cli.index import add_reader
from bert_jax.cli.metrics import add_judgements, measure_of
from bert_jax.errors import OptionError, counted
from bert_jax.files.paths import TREC_ENDINGS

if TYPE_CHECKING:
    from bert_jax.search.hits import Hit

SUMMARY = "the documents of an index that fit queries best"

# Queries with their hits in memory together.
_QUERIES = 64
# Hits of a query by default, and where metrics are computed.
_TOP_K, _JUDGED = 10, 1000


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    one = "several, each with its own --index, of one collection are fused"
    add("--index", required=True, action="append", type=directory, metavar="INDEX", help=one)
    queries = parser.add_mutually_exclusive_group(required=True)
    queries.add_argument("--text", action="append", metavar="TEXT", help="a query; may be repeated")
    queries.add_argument("--input", metavar="FILE", help="the queries, or a folder as BEIR's")
    add("--model", metavar="DIR", help="the model of the queries (default: where it was)")
    add("--prompt", metavar="NAME", help="the model's prompt of this name, or a text to put before")
    depth = f"hits for each query (default: {_TOP_K}, with judgements {_JUDGED}, as in TREC)"
    add("--top-k", type=int, metavar="N", help=depth)
    kinds = "exact, faiss, lance, sparse, maxsim or bm25; faiss:nprobe=32; fused, faiss+bm25"
    add("--searcher", metavar="NAME", help=f"{kinds} (default: the first of vectors)")
    trec = " or ".join(TREC_ENDINGS)
    files = f"JSON lines (default: to stdout), .json, .parquet, or a run of TREC ({trec})"
    add("--output", default="-", metavar="FILE", help=files)
    add_computing(parser)
    add_judgements(parser)
    add_reader(parser)


def run(options: argparse.Namespace) -> int:
    """Searches; prints the metrics on the last line, if there are judgements."""
    from bert_jax.data.converted_outputs import LINES, layout_of
    from bert_jax.data.outputs import check_output, resumable_outputs, to_json
    from bert_jax.data.readers.collection import CollectionOptions, read_queries
    from bert_jax.data.runs import check_names, run_lines
    from bert_jax.inference.index import Index, hit_record
    from bert_jax.search.fusion import FUSED, fuse_hits

    check_output(options.output, [options.input, options.judgements])
    if options.text:
        queries = {str(number): text for number, text in enumerate(options.text)}
    else:
        queries = read_queries(options.input, fields_from(CollectionOptions, options))
    if is_run := Path(options.output).suffix.lower() in TREC_ENDINGS:
        check_names(queries)
    layout = LINES if is_run else layout_of(options.output, others=TREC_ENDINGS)
    measure = measure_of(options)
    if options.top_k is None:
        options.top_k = _JUDGED if measure else _TOP_K
    mesh = local_mesh()
    (model,) = open_models(options, mesh, "model")
    _check_fused(options)
    indexes = [Index.load(each, model, mesh=mesh) for each in options.index]
    if measure:
        measure.check(queries, indexes[0].has_any, options.top_k)
    waiting, run = iter(queries), {}
    with resumable_outputs(options.output, [layout], request=None) as outputs:
        while ids := list(itertools.islice(waiting, _QUERIES)):
            found = [
                index.search(
                    [queries[each] for each in ids],
                    options.top_k if len(indexes) == 1 else max(options.top_k, FUSED),
                    searcher=options.searcher,
                    prompt=options.prompt,
                    batch_size=options.batch_size,
                )
                for index in indexes
            ]
            results = found[0] if len(indexes) == 1 else fuse_hits(found, options.top_k)
            for each, hits in zip(ids, results, strict=True):
                scores = scores_of(hits)
                if measure:
                    run[each] = scores
                if is_run:
                    outputs.write("", run_lines(each, scores))
                    continue
                records = [hit_record(hit) for hit in hits]
                record = {"id": each, "query": queries[each], "hits": records}
                outputs.write("", to_json(record) + "\n")
    say_written(options.output, counted(len(queries), "queries"))
    if measure:
        measure.show(run, Path(options.output))
    return 0


def _check_fused(options: argparse.Namespace) -> None:
    """Raises OptionError if an option of a single index is given with several."""
    for name in ("model", "prompt", "searcher"):
        if len(options.index) > 1 and getattr(options, name) is not None:
            rule = "it is for a single {index}; leave it out"
            raise OptionError(name, getattr(options, name), rule)


def scores_of(hits: "Sequence[Hit]") -> dict[str, float]:
    """The score of each document, the best first; of one in passages, the score of the best."""
    scores: dict[str, float] = {}
    for hit in hits:
        scores.setdefault(hit.document or hit.id, hit.score)
    return scores
