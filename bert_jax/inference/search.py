"""Cosines between texts, and the texts nearest to a query, by the vectors of a model."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from bert_jax.errors import require_at_least
from bert_jax.tasks.base.predictor import BatchOptions, Model
from bert_jax.tasks.base.streams import predict_examples
from bert_jax.tasks.embed import EmbeddingPredictor
from bert_jax.tasks.similarity.predict import Match, checked_texts, cosine, stored_pooling


def similarity(
    model: Model,
    texts: Iterable[str],
    others: Iterable[str] | None,
    pooling: str | None,
    options: BatchOptions,
) -> np.ndarray:
    chosen = pooling or stored_pooling(model.description)

    def unit_vectors(texts: Iterable[str]) -> np.ndarray:
        predictor = EmbeddingPredictor(model, options, pooling=chosen, normalize=True)
        vectors = list(predict_examples(predictor, checked_texts(texts)))
        return np.array(vectors, np.float32).reshape(-1, model.config.hidden_size)

    left = unit_vectors(texts)
    right = left if others is None else unit_vectors(others)
    return np.clip(left @ right.T, -1, 1)  # rounding can make it 1.0000001


def search(
    model: Model,
    query: str,
    texts: Iterable[str],
    top_k: int,
    pooling: str | None,
    options: BatchOptions,
) -> list[Match]:
    require_at_least("top_k", top_k, 1)
    waiting: deque[str] = deque()  # texts without a vector yet

    def read() -> Iterator[str]:
        yield from checked_texts([query])
        for text in checked_texts(texts):
            waiting.append(text)
            yield text

    pooling = pooling or stored_pooling(model.description)
    vectors = predict_examples(EmbeddingPredictor(model, options, pooling=pooling), read())
    target = next(vectors)
    pairs = (np.stack([target, vector]) for vector in vectors)
    matches = (Match(index, waiting.popleft(), cosine(pair)) for index, pair in enumerate(pairs))
    return heapq.nsmallest(top_k, matches, key=lambda match: (-match.score, match.index))
