"""`bert-jax index`: the vectors of a collection of documents, to be searched."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.cli.common import (
    Parser,
    add_computing,
    add_hosts,
    directory,
    fields_from,
    local_mesh,
    on_all_hosts,
    open_models,
)
from bert_jax.errors import OptionError
from bert_jax.options import keys_of

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from bert_jax.inference.index import Index

SUMMARY = "vectors of a collection, to be searched"

# The options that go without documents.
_SEARCHERS = ("faiss", "bm25", "lance")


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--model", metavar="DIR", help="model directory or hub id")
    either = parser.add_mutually_exclusive_group().add_argument
    documents = "the documents, or a folder as BEIR's (default: those in the index)"
    either("--input", metavar="FILE", help=documents)
    either("--delete", metavar="FILE", help="delete documents: ids, one in each line")
    add("--output", required=True, type=directory, metavar="INDEX", help="only for the index")
    add("--add", action="store_true", help="add the documents to an index, with its searchers")
    add("--query-model", metavar="DIR", help="the model of the queries, if it is another one")
    add_computing(parser, "maximum tokens of a document")
    add("--pooling", metavar="HOW", help="pooling of vectors (default: the model's)")
    add("--prompt", metavar="NAME", help="the model's prompt of this name, or a text to put before")
    add("--similarity", metavar="NAME", help="cosine, dot, euclidean or manhattan")
    add("--dtype", metavar="NAME", help="float32 (default), or float16 in half the space")
    add("--passages", type=int, metavar="N", help="cut documents into passages of N words, as 100")
    titles = "join (default): title and text are one text; pair: they are two; omit: no titles"
    add("--titles", metavar="HOW", help=titles)
    without = "store no texts"
    add("--no-texts", dest="store_texts", action="store_false", default=None, help=without)
    add(
        "--faiss",
        metavar="FACTORY",
        help="index of FAISS, as IVF1024,PQ48 (default: Flat, of tokens none); '' for none",
    )
    languages = "search by words, too, of a language (english); also english:k1=1.2,b=0.75"
    add("--bm25", nargs="?", const="english", metavar="LANGUAGE", help=languages)
    table = "a table of LanceDB, for more than fits in memory"
    add("--lance", action="store_true", default=None, help=table)
    add_reader(parser)
    add_hosts(parser)


def add_reader(parser: Parser) -> None:
    """Adds the options of the reader of documents or queries."""
    add = parser.add_argument_group("how the input is read").add_argument
    kinds = "jsonl, tsv, csv, text or squad (default: by the file extension)"
    add("--input-format", dest="format", metavar="NAME", help=kinds)
    for name in ("id", "text", "title"):
        add(f"--{name}-column", metavar="NAME", help=f"column or key of the {name}")
    header = "the table has no header line, and columns have numbers from 0"
    add("--no-header", dest="header", action="store_false", default=None, help=header)
    add("--quotes", metavar="HOW", help="quotation marks in TSV: auto (default), none or csv")
    add("--empty", metavar="HOW", help="texts that are empty: error (default), or skip")


@on_all_hosts
def run(options: argparse.Namespace) -> int:
    """Makes an index or changes it; prints the number of documents on the last line."""
    from bert_jax.data.readers.collection import CollectionOptions, open_collection
    from bert_jax.inference.index import index
    from bert_jax.inference.index_options import IndexOptions
    from bert_jax.sharding.hosts import is_main_host

    # Each device has the whole model; each host embeds its share of the documents.
    mesh = local_mesh()
    how: dict[str, Any] = {"batch_size": options.batch_size, "progress": is_main_host()}
    if not options.input:
        opened = _changed(options, mesh)
    else:
        with open_collection(options.input, fields_from(CollectionOptions, options)) as documents:
            if options.add:
                rule = "an index that documents are added to keeps its own"
                opened = _opened(options, mesh, rule, but=["model"])
                opened.add(documents, **how)
            else:
                if not options.model:
                    problem = "there is no model of the documents"
                    raise OptionError("model", None, "give {model}", problem)
                model, query_model = open_models(options, mesh, "model", "query_model")
                how |= {"query_model": query_model, "options": fields_from(IndexOptions, options)}
                opened = index(model, documents, path=options.output, **how)
    print(json.dumps({"passages" if opened.passages else "documents": len(opened)}))
    return 0


def _changed(options: argparse.Namespace, mesh: "Mesh") -> "Index":
    """An index without the documents of `--delete`, or with more searchers."""
    from bert_jax.data.readers.lines import open_lines

    if options.add:
        raise OptionError("input", None, "give the documents to {add}")
    if options.delete:
        opened = _opened(options, mesh, "it does not go with {delete}; leave it out")
        with open_lines(options.delete) as lines:
            opened.delete([each for _, line in lines if (each := line.strip())])
        return opened
    opened = _opened(options, mesh, "it is for documents; give {input}", but=_SEARCHERS)
    opened.add_searchers(
        **{name: value for name in _SEARCHERS if (value := getattr(options, name)) is not None}
    )
    return opened


def _opened(
    options: argparse.Namespace, mesh: "Mesh", rule: str, but: Sequence[str] = ()
) -> "Index":
    """The index that is there; raises OptionError with the rule for options of a new one."""
    from bert_jax.data.readers.collection import CollectionOptions
    from bert_jax.inference.index import Index
    from bert_jax.inference.index_options import IndexOptions

    names = [*keys_of(IndexOptions), *(() if options.input else keys_of(CollectionOptions))]
    for name in ("model", "query_model", "precision", *names):
        if name not in but and (value := getattr(options, name, None)) is not None:
            raise OptionError(name, value, rule)
    return Index.load(options.output, document_model=options.model, mesh=mesh)
