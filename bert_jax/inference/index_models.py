"""The models of an index: which vectors they make of documents and of queries."""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import OptionError, UserError
from bert_jax.inference.index_options import IndexOptions
from bert_jax.inference.output_cache import model_fingerprint
from bert_jax.models.heads.sparse_vectors import SparseVectors
from bert_jax.models.heads.token_vectors import TokenVectors
from bert_jax.models.vectors import DOCUMENT, QUERY
from bert_jax.search.vector_files import DENSE, KIND_NAMES, SPARSE, TOKENS, VectorFiles
from bert_jax.tasks.base.predictor import BatchOptions, Model
from bert_jax.tasks.base.vector_kinds import SparseKind, TextKind, TokenKind, check_makes_vectors
from bert_jax.tasks.embed import EmbeddingPredictor
from bert_jax.tasks.sparse_vectors import SparsePredictor
from bert_jax.tasks.token_vectors import TokenVectorsPredictor, token_vectors_of

# The options that vectors depend on.
_OPTIONS = (
    *("pooling", "prompt", "similarity", "max_length", "dtype"),
    *("store_texts", "passages", "titles"),
)

# The kind of the texts of each model.
_SIDES = {"model": DOCUMENT, "query_model": QUERY}

_REMEDY = "give another model, or make an index with a pooling, such as mean"

VectorPredictor = EmbeddingPredictor | SparsePredictor | TokenVectorsPredictor


def settings_of(model: Model, query_model: Model, options: IndexOptions) -> dict[str, Any]:
    """Everything that the vectors of an index depend on, see `Contents.settings`.

    Raises:
        UserError: an option does not fit the model, or vectors of queries and documents differ.
    """
    if options.pooling is None:
        for each in (model, query_model):
            check_makes_vectors(each.description, _REMEDY)
    model, query_model = model.side_model(DOCUMENT), query_model.side_model(QUERY)
    kind, fixed = _kind(model, options)
    settings = {
        "model": fingerprint(model, "model"),
        "query_model": fingerprint(query_model, "query_model"),
        "precision": precision_of(model),
        "kind": kind,
        **{name: getattr(options, name) for name in _OPTIONS},
        "similarity": options.similarity
        or fixed.get("similarity", model.description.vectors.similarity),
    }
    for name, value in fixed.items():
        if settings[name] != value:
            raise OptionError(name, settings[name], f"of {KIND_NAMES[kind]}, it is {value}")
    widths = [
        document_predictor(model, settings, 1).width,
        query_predictor(query_model, settings, 1).width,
    ]
    if widths[0] != widths[1]:
        raise UserError(
            f"vectors of documents have the width {widths[0]}, of queries {widths[1]}; give two "
            "models of one width"
        )
    return {**settings, "width": widths[0]}


def _kind(model: Model, options: IndexOptions) -> tuple[str, dict[str, str]]:
    """The kind of the vectors of documents, and the options that have one value alone."""
    if options.pooling is None:
        match model.description.stored_vectors:
            case SparseVectors():
                return SPARSE, {"similarity": "dot", "dtype": "float32"}
            case TokenVectors():
                return TOKENS, {"similarity": token_vectors_of(model.description).similarity}
    return DENSE, {}


def kind_of(settings: Mapping[str, Any]) -> TextKind | SparseKind | TokenKind:
    """The kind of the vectors of an index; those that are compared by the cosine have length 1."""
    if settings["kind"] == SPARSE:
        return SparseKind()
    similarity = settings["similarity"]
    if settings["kind"] == TOKENS:
        return TokenKind(similarity)
    return TextKind(similarity, settings["pooling"], similarity == "cosine" or None)


def document_predictor(
    model: Model, settings: Mapping[str, Any], batch_size: int
) -> VectorPredictor:
    """The predictor of the vectors of documents."""
    options = BatchOptions(batch_size, settings["max_length"])
    return kind_of(settings).predictor(model, options, DOCUMENT, settings["prompt"])


def query_predictor(
    model: Model, settings: Mapping[str, Any], batch_size: int, prompt: str | None = None
) -> VectorPredictor:
    """The predictor of the vectors of queries."""
    return kind_of(settings).predictor(model, BatchOptions(batch_size), QUERY, prompt)


def fingerprint(model: Model, name: str) -> str:
    """A digest of everything that the vectors of the "model" or the "query_model" depend on."""
    return str(model_fingerprint(model.side_model(_SIDES[name]))["model"])


def precision_of(model: Model) -> str:
    """The dtype of the activations of a model."""
    module: Any = model.module
    return str(module.execution.dtype)


def check_model(model: Model, files: VectorFiles, name: str) -> None:
    """Raises OptionError if a model is not the "model" or "query_model" of an index."""
    if fingerprint(model, name) != files.contents.settings[name]:
        path = files.contents.paths[name]
        raise OptionError(
            "model",
            path,
            f"give the same model{f', {path}' if path else ''}, or make a new index",
            f"{files.directory} was made by another model",
        )


def is_query_model(model: Model, settings: Mapping[str, Any]) -> bool:
    """Whether a model makes the vectors of the queries of an index, to the bit."""
    same_precision = precision_of(model) == settings["precision"]
    return same_precision and fingerprint(model, "query_model") == settings["query_model"]


def path_of(model: Model) -> str:
    """The directory that a model was loaded from; "": it was made in memory."""
    origin = getattr(model, "origin", None)
    return str(origin.directory) if origin else ""
