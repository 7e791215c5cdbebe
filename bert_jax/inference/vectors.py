"""Vectors of texts, similarities between them, and the texts nearest to a query."""

import functools
import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from bert_jax.data.examples import Stream, Text
from bert_jax.errors import require_at_least
from bert_jax.inference.engine import Engine, predict_examples
from bert_jax.inference.streams import progress_bar
from bert_jax.metrics.similarity import similarities
from bert_jax.models.vectors import DOCUMENT, QUERY
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor, not_one_string
from bert_jax.tasks.base.vector_kinds import TextKind
from bert_jax.tasks.embed import EmbeddingPredictor, EmbedPredictOptions
from bert_jax.tasks.similarity.predict import Match, checked_texts
from bert_jax.tasks.sparse_vectors import SparsePredictOptions, SparsePredictor, SparseVector
from bert_jax.tasks.token_vectors import TokenVectorsOfText, TokenVectorsPredictor

Prediction = TypeVar("Prediction")

# From this number of texts on, an index is worth its line.
_MANY_TEXTS = 1_000


def embed(
    model: Model,
    texts: Iterable[Text],
    pooling: str | Sequence[str] | None = None,
    *,
    normalize: bool | None = None,
    prompt: str | None = None,
    side: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: bool = False,
) -> np.ndarray:
    """One vector for each text, float32 [B, X].

    None: as in the sentence-transformers files beside the model; without such files the mean (DPR:
    "cls"), vectors of any length, and no prompt.

    Args:
        model: the model.
        texts: strings; or pairs of strings, each read as one row with one vector of both.
        pooling: "mean", "max", "weightedmean" or "mean_sqrt_len_tokens" over all tokens; "cls", the
            vector of [CLS]; "lasttoken"; "pooler", the output of the pooler; or several, which are
            concatenated. What the model has after its own pooling is applied, too.
        normalize: True: vectors are scaled to length 1; False: they are not.
        prompt: name of a prompt of the model, or a text, which is put before each text.
        side: "query" or "document", the kind of the texts, as in a search: they get the prompt of
            this kind, and where the model has an encoder for it, that one; None: of no kind.
        batch_size: maximum number of rows computed together; short texts share rows.
        max_length: maximum number of tokens of a text.
        progress: whether a progress bar is shown on stderr.

    Raises:
        UserError: the pooling, the prompt or the side is unknown, the model has no pooler, or an
            element is not a text.
    """
    texts = list(not_one_string(texts))
    options = EmbedPredictOptions(
        batch_size, max_length, pooling=pooling, prompt=prompt, side=side, normalize=normalize
    )
    predictor = EmbeddingPredictor(model, options)
    vectors = np.empty((len(texts), predictor.width), np.float32)
    for row, vector in enumerate(_predictions(predictor, texts, progress)):
        vectors[row] = vector
    return vectors


def sparse_vectors(
    model: Model,
    texts: Iterable[Text],
    *,
    prompt: str | None = None,
    max_active_dims: int | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: bool = False,
) -> list[SparseVector]:
    """The weights of words for each text (SPLADE), by the head of the masked language model.

    `max_active_dims` is the number of the largest weights that are kept; for the other arguments
    see `embed`. None: as in the sentence-transformers files beside the model; without such files
    the maximum over the tokens, all weights above 0, and no prompt.

    Raises:
        UserError: the model has no such head, the prompt is unknown, or an element is not a text.
    """
    texts = list(not_one_string(texts))
    options = SparsePredictOptions(
        batch_size, max_length, prompt=prompt, max_active_dims=max_active_dims
    )
    return list(_predictions(SparsePredictor(model, options), texts, progress))


def token_vectors(
    model: Model,
    texts: Iterable[Text],
    side: str = "document",
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: bool = False,
) -> list[TokenVectorsOfText]:
    """The vectors of the tokens of each text that count, for late interaction (ColBERT).

    `side`, "query" or "document", is the kind of the texts; each has its prompt, length and rules.
    For the other arguments see `embed`.

    Raises:
        UserError: the model makes no such vectors, or an element is not a text.
    """
    texts = list(not_one_string(texts))
    predictor = TokenVectorsPredictor(model, BatchOptions(batch_size, max_length), side=side)
    return list(_predictions(predictor, texts, progress))


def _predictions(
    predictor: Predictor[Text, Prediction], texts: list[Text], progress: bool
) -> Iterator[Prediction]:
    """The prediction of each text; `progress` shows a bar on stderr."""
    with progress_bar(lambda: len(texts), enabled=progress) as advance:
        yield from predict_examples(predictor, texts, advance=advance)


def similarity(
    model: Model,
    texts: Iterable[str],
    others: Iterable[str] | None = None,
    *,
    pooling: str | Sequence[str] | None = None,
    prompt: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
) -> np.ndarray:
    """The similarity of each of B texts to each of the `others`, or of `texts`, float32 [B, …].

    It is the cosine, or the function that the model's files name: "dot", or "euclidean" or
    "manhattan", the negative distance. For the other arguments and for errors see `embed`.
    """
    vectors = functools.partial(
        embed, model, pooling=pooling, prompt=prompt, batch_size=batch_size, max_length=max_length
    )
    left = vectors(checked_texts(texts))
    right = left if others is None else vectors(checked_texts(others))
    return similarities(left, right, model.description.vectors.similarity)


def search(
    model: Model,
    query: str,
    texts: Iterable[str],
    top_k: int = 10,
    *,
    pooling: str | Sequence[str] | None = None,
    prompt: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
) -> list[Match]:
    """The texts that are nearest to a query by `similarity`, the nearest first.

    The texts are read and embedded for this query alone; `LoadedModel.index` keeps their vectors,
    for many queries. Only the best `top_k` texts are kept. The model's prompt "document",
    "passage" or "corpus" is put before them, and "query" before the query unless `prompt` says
    another; without such a prompt, its default. For the other arguments and for errors see `embed`.
    """
    require_at_least("top_k", top_k, 1)
    options = BatchOptions(batch_size, max_length)
    kind = TextKind(model.description.vectors.similarity, pooling)
    query_predictor = kind.predictor(model, options, QUERY, prompt)
    (target,) = predict_examples(query_predictor, checked_texts([query]))
    text_predictor = kind.predictor(model, options, DOCUMENT)
    read = Stream(checked_texts(texts))
    chunks = Engine(text_predictor).run(read, strict=True, report=True)
    scores = (
        (str(text), float(kind.similarities([target], [vector])[0, 0]))
        for chunk in chunks
        for text, vector in chunk.pairs
    )
    matches = (Match(index, text, score) for index, (text, score) in enumerate(scores))
    best = heapq.nsmallest(top_k, matches, key=lambda match: (-match.score, match.index))
    if read.count >= _MANY_TEXTS and is_main_host():
        _say_index()
    return best


@functools.cache
def _say_index() -> None:
    """Says once in a process how not to embed many texts for each query."""
    say(
        "search embeds its texts for each query; index = model.index(texts), with path= on the "
        "disk, embeds them once, and index.search(queries) takes many queries"
    )
