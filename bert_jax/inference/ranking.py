"""Documents in the order of their relevance to a query, by any model that can compare them."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.checkpoints.sentence_transformers.cross_encoder import check_computed
from bert_jax.data.examples import Candidates, Text, texts_of
from bert_jax.errors import OptionError, require_at_least
from bert_jax.inference.engine import Advance, Chunk, Engine
from bert_jax.models.vectors import SIDES
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.predictor import (
    EncodingCounts,
    ExampleError,
    Model,
    Predictor,
    not_one_string,
)
from bert_jax.tasks.base.vector_kinds import TextKind, VectorKind, check_makes_vectors, vector_kind
from bert_jax.tasks.ranking.predict import (
    RERANK,
    CrossEncoderPredictor,
    RankingPredictOptions,
    candidates_error,
)
from bert_jax.tasks.similarity.predict import Match

# Documents with their vectors in memory together: 400 MB of 200 token vectors of width 128.
_DOCUMENTS = 4096


def rank(
    model: Model,
    query: str,
    documents: Iterable[Text],
    top_k: int | None = None,
    *,
    batch_size: int = 32,
    max_length: int | None = None,
) -> list[Match]:
    """The documents in the order of their relevance to a query, the best first.

    A cross-encoder, a classifier with one output, reads the query with each document; its score has
    the activation that its files store, see `classify`. Any other model compares the vectors of the
    query and of the documents, with the prompts and the similarity function in its files.

    Args:
        model: the model.
        query: the query.
        documents: texts, or pairs of a title and a text.
        top_k: number of documents that are returned; None: all.
        batch_size: maximum number of rows computed together; short texts share rows.
        max_length: maximum number of tokens of a row.

    Raises:
        UserError: the model is a classifier with several outputs or of another task, its files
            require vectors that are not supported, or an element is not a text.
    """
    require_at_least("top_k", top_k, 1)
    texts = tuple(not_one_string(documents, "documents"))
    if not texts:
        return []
    options = RankingPredictOptions(batch_size=batch_size, max_length=max_length)
    (chunk,) = score_chunks(model, [Candidates(query, texts)], options)
    ((_, scores),) = chunk.pairs
    best = np.argsort(-scores, kind="stable")[:top_k]
    return [Match(int(n), " ".join(texts_of(texts[n])), float(scores[n])) for n in best]


def score_chunks(
    model: Model,
    examples: Iterable[Candidates],
    options: RankingPredictOptions,
    *,
    advance: Advance = lambda count: None,
) -> Iterator[Chunk[Candidates, np.ndarray]]:
    """The scores of the documents of each query, float32 [K], see `Engine.run`.

    Raises:
        UserError: see `rank`; or `raw_scores` are of vectors.
    """
    if model.description.head in RERANK.heads:
        engine = Engine(CrossEncoderPredictor(model, options))
        return engine.run(examples, strict=True, advance=advance, report=True)
    if options.raw_scores:
        raise OptionError("raw_scores", True, "vectors have no activation; leave it out")
    check_computed(model.description.other)  # of a cross-encoder without a classifier
    check_makes_vectors(model.description, "give a cross-encoder, or a model of vectors")
    kind = vector_kind(model.description)
    if isinstance(kind, TextKind) and is_main_host():
        say_by_vectors()
    query_predictor, document_predictor = (kind.predictor(model, options, side) for side in SIDES)
    return _vector_chunks(kind, query_predictor, document_predictor, examples, advance)


@functools.cache
def say_by_vectors() -> None:
    """Says, once in a process, that a model ranks no better than a search with it."""
    say("the model is no cross-encoder: documents are ranked by their vectors, as in a search")


def _vector_chunks(
    kind: VectorKind,
    query_predictor: Predictor[Any, Any],
    document_predictor: Predictor[Any, Any],
    examples: Iterable[Candidates],
    advance: Advance,
) -> Iterator[Chunk[Candidates, np.ndarray]]:
    """Chunks of some queries; a document of several queries of a chunk is computed once."""
    start, all_queries, all_documents = 0, EncodingCounts(texts=0), EncodingCounts(texts=0)
    for chosen in _by_documents(examples):
        for number, example in enumerate(chosen, start):
            if error := candidates_error(example):
                raise ExampleError(error.message, number)
        queries, query_counts = _predictions(query_predictor, [example.query for example in chosen])
        texts = dict.fromkeys(text for example in chosen for text in example.documents)
        vectors, document_counts = _predictions(document_predictor, [*texts])
        by_text = dict(zip(texts, vectors, strict=True))
        scores: list[np.ndarray | ExampleError] = [
            kind.similarities([query], [by_text[text] for text in example.documents])[0]
            for query, example in zip(queries, chosen, strict=True)
        ]
        advance(len(chosen))
        all_queries = EncodingCounts.total([all_queries, query_counts])
        all_documents = EncodingCounts.total([all_documents, document_counts])
        yield Chunk(chosen, scores, is_full=True, counts=document_counts)
        start += len(chosen)
    if is_main_host():
        say(*query_predictor.report(all_queries), *document_predictor.report(all_documents))


def _by_documents(examples: Iterable[Candidates]) -> Iterator[list[Candidates]]:
    """Cuts the queries into lists with about `_DOCUMENTS` documents."""
    chosen: list[Candidates] = []
    count = 0
    for example in examples:
        chosen.append(example)
        count += len(example.documents)
        if count >= _DOCUMENTS:
            yield chosen
            chosen, count = [], 0
    if chosen:
        yield chosen


def _predictions(
    predictor: Predictor[Any, Any], texts: Sequence[Any]
) -> tuple[list[Any], EncodingCounts]:
    chunks = list(Engine(predictor).run(texts, strict=True))
    made = [prediction for chunk in chunks for _, prediction in chunk.pairs]
    return made, EncodingCounts.total(chunk.counts for chunk in chunks)
