"""`bert-jax draw`: a model's positions, or a map of its vectors of texts, as one HTML page."""

import argparse
from typing import TYPE_CHECKING

from bert_jax.cli.common import Parser, add_option, local_mesh, say_written, values_of
from bert_jax.errors import OptionError

if TYPE_CHECKING:
    from bert_jax.inference.model import LoadedModel
    from bert_jax.pictures.page import Page

SUMMARY = "a model's positions, or a map of its vectors, as one HTML page"

_MAP_OPTIONS = ("input", "method")


def add_arguments(parser: Parser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("picture", choices=("positions", "map"), help="the position table; vectors of texts")
    add("--model", required=True, metavar="DIR", help="model directory or hub id")
    add("--output", required=True, metavar="FILE", help="the page, as map.html; - is stdout")
    add("--input", metavar="FILE", help="the texts of a map, with their labels")
    add("--method", metavar="NAME", help="of a map: pca (default) or umap")
    add_option(parser, "an option of predict --task embed, as label_column=NAME")


def run(options: argparse.Namespace) -> int:
    """Writes the page."""
    from bert_jax.data.outputs import check_output
    from bert_jax.inference.loading import load

    _check(options)
    check_output(options.output, [options.input])
    model = load(options.model, mesh=local_mesh())
    page = _positions(model) if options.picture == "positions" else _map(model, options)
    page.save(options.output)
    say_written(options.output, page.title)
    return 0


def _check(options: argparse.Namespace) -> None:
    is_map = options.picture == "map"
    if is_map and not options.input:
        raise OptionError("input", None, "give {input}, a file of texts", "a map needs texts")
    for name in () if is_map else _MAP_OPTIONS:
        if value := getattr(options, name):
            raise OptionError(name, value, "it is for a map; leave it out")


def _positions(model: "LoadedModel") -> "Page":
    from bert_jax.pictures.positions import position_table, positions_page
    from bert_jax.tasks.base.encoder_layers import encoder_of

    _, params = encoder_of(model)
    table = params["embeddings"].get("position_embeddings", {})
    # Of images, the tokens before the patches have the first positions.
    learned = table.get("embedding") if model.config.images is None else table[0]
    return positions_page(model.config.position_kind, position_table(model.config, learned))


def _map(model: "LoadedModel", options: argparse.Namespace) -> "Page":
    import numpy as np

    from bert_jax.data.examples import texts_of
    from bert_jax.inference.engine import predict_examples
    from bert_jax.pictures.vector_map import METHODS, map_page
    from bert_jax.tasks.embed import PREDICT

    read = PREDICT.read_options("embed", "", values_of(options))
    with PREDICT.reader.open(options.input, read) as found:
        examples = list(found)
    inputs = (each.input for each in examples)
    vectors = np.array([*predict_examples(PREDICT.predictor(model, read), inputs)])
    labels = [str(each.fields.get(each.label_field, "")) for each in examples]
    texts = [" / ".join(texts_of(each.input)) for each in examples]
    return map_page(vectors, labels, texts, options.method or METHODS[0])
