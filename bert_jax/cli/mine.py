"""`bert-jax mine`: hard negatives for queries to train on."""

import argparse
import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.cli.common import (
    Parser,
    add_computing,
    add_option,
    directory,
    fields_from,
    local_mesh,
    open_models,
    say_written,
    values_of,
)
from bert_jax.errors import OptionError, UserError
from bert_jax.process import say

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from bert_jax.inference import mining
    from bert_jax.inference.model import LoadedModel
    from bert_jax.tasks.ranking.predict import RankingPredictOptions

SUMMARY = "hard negatives for queries to train on"


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--input", required=True, metavar="FILE", help="queries with positives")
    add("--output", required=True, metavar="FILE", help="JSON lines, a file to train on")
    add("--model", metavar="DIR", help="model of the vectors (default: the index's)")
    add("--collection", metavar="FILE", help="documents (default: all positives of the input)")
    add("--index", type=directory, metavar="INDEX", help="documents that are indexed already")
    add("--searcher", metavar="NAME", help="of an index, see `search`; bm25 needs none, no model")
    add("--negatives", type=int, metavar="N", help="negatives of a query (default: 3)")
    add("--range-min", type=int, metavar="N", help="best candidates that are left out")
    add("--range-max", type=int, metavar="N", help="best candidates that are considered")
    add("--min-score", type=float, metavar="X", help="lowest score of a negative")
    add("--max-score", type=float, metavar="X", help="highest score of a negative")
    margin = "least difference to the score of the positive"
    add("--absolute-margin", type=float, metavar="X", help=margin)
    add("--relative-margin", type=float, metavar="X", help=f"{margin}, as a share of it, as 0.05")
    add("--sampling", metavar="HOW", help="candidates that become negatives: top (default), random")
    add("--seed", type=int, metavar="N", help="seed of random ones (default: 0)")
    add("--scores", action="store_const", const=True, help="write scores, as a teacher's")
    add("--reranker", metavar="DIR", help="model with scores that replace the searcher's")
    add("--raw-scores", action="store_true", help="its scores without an activation")
    add_computing(parser)
    add_option(parser, "an option of the input that has no flag, such as titles=omit")


def run(options: argparse.Namespace) -> int:
    """Mines; prints the numbers of queries, negatives and dropped candidates on the last line."""
    from bert_jax.data.converted_outputs import layout_of
    from bert_jax.data.outputs import check_output
    from bert_jax.data.readers.ranking import read_candidates
    from bert_jax.inference import mining
    from bert_jax.inference.predict import check_request
    from bert_jax.tasks.ranking.predict import RERANK

    check_request(None, options.input, options.output)
    if options.raw_scores and not options.reranker:
        raise OptionError("raw_scores", True, "it is for a {reranker}; give one, or leave it out")
    rules = fields_from(mining.MiningOptions, options)
    fixed = {name: getattr(options, name) for name in ("raw_scores", "batch_size")}
    values = values_of(options, fixed | {"require_positive": True})
    how: Any = RERANK.read_options("mine", options.output, values)
    check_output(options.output, [options.collection, how.corpus, how.queries])
    layout_of(options.output, only_lines=True)
    queries = mining.merged(read_candidates(options.input, how), rules)
    if not queries:
        raise UserError(f"{options.input} has no query with a positive; give another input")
    mesh = local_mesh()
    model, reranker = open_models(options, mesh, "model", "reranker")
    retriever = _retriever(options, how, queries, model, mesh)
    result = mining.mine(
        queries, retriever, options.output, rules, how, reranker=reranker, progress=True
    )
    counts = f"{result['queries']:,} queries, {result['negatives']:,} negatives"
    say_written(options.output, counts)
    for name, what in ("fewer", "fewer negatives than asked for"), ("without", "none, left out"):
        if result[name]:
            say(f"queries with {what}: {result[name]:,}")
    reasons = (f"{name} {count:,}" for name, count in result["dropped"].items())
    say(f"candidates left out: {', '.join(reasons) or 'none'}")
    if options.output != "-":
        print(json.dumps(result))
    return 0


def _retriever(
    options: argparse.Namespace,
    how: "RankingPredictOptions",
    queries: "Sequence[mining.Query]",
    model: "LoadedModel | None",
    mesh: "Mesh",
) -> "mining.Retriever":
    """Finds documents of the index, of the collection or of the queries."""
    from bert_jax.data.readers.collection import CollectionOptions, open_collection
    from bert_jax.inference import mining
    from bert_jax.inference.index import Index, index
    from bert_jax.inference.index_options import IndexOptions
    from bert_jax.search.searchers import BM25, EXACT, MAXSIM
    from bert_jax.search.vector_files import SPARSE

    if options.index:
        if options.collection:
            raise OptionError("collection", options.collection, "leave it out, or {index}")
        opened = Index.load(options.index, model, mesh=mesh)
        return mining.index_retriever(opened, options.searcher, options.batch_size)
    if not model and options.searcher != BM25:
        raise OptionError("model", options.model, "give {model}, {index}, or {searcher=bm25}")
    if model and options.searcher == BM25:
        raise OptionError("searcher", BM25, "leave out {model}, or {searcher}")
    if model and (options.searcher or EXACT).partition(":")[0] not in (EXACT, SPARSE, MAXSIM):
        rule = "without {index}, the search is exact; leave it out, or make an index with it"
        raise OptionError("searcher", options.searcher, rule)
    collection: Any = contextlib.nullcontext(mining.positives_of(queries))
    if options.collection:
        collection = open_collection(options.collection, CollectionOptions(empty=how.empty))
    with collection as documents:
        if model is None:
            return mining.word_retriever(documents, how.titles)
        made = index(
            model,
            documents,
            options=IndexOptions(titles=how.titles, faiss=""),
            batch_size=options.batch_size,
            progress=True,
        )
    return mining.index_retriever(made, options.searcher, options.batch_size)
