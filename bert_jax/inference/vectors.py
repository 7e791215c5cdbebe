"""Vectors of texts, similarities between them, and the texts nearest to a query."""

import functools
import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from bert_jax.data.examples import Text
from bert_jax.errors import require_at_least
from bert_jax.inference.engine import Engine
from bert_jax.inference.streams import predict_examples, predict_windows, progress_bar
from bert_jax.metrics.similarity import similarities, similarity_of_pair
from bert_jax.tasks.base.predictor import BatchOptions, Model, not_one_string
from bert_jax.tasks.embed import EmbeddingPredictor
from bert_jax.tasks.similarity.predict import Match, checked_texts

# Names of prompts before a query and before the texts; the first that a model has is used.
_OF_QUERY, _OF_TEXTS = ("query",), ("document", "passage", "corpus")


def embed(
    model: Model,
    texts: Iterable[Text],
    pooling: str | Sequence[str] | None = None,
    *,
    normalize: bool | None = None,
    prompt: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: bool = False,
) -> np.ndarray:
    """One vector for each text, float32 [B, D].

    None: as in the sentence-transformers files beside the model; without such files the mean (DPR:
    "cls"), vectors of any length, and no prompt.

    Args:
        model: the model.
        texts: strings, or pairs of strings.
        pooling: "mean", "max", "weightedmean" or "mean_sqrt_len_tokens" over all tokens; "cls", the
            vector of [CLS]; "lasttoken"; "pooler", the output of the pooler; or several, which are
            concatenated. What the model has after its own pooling is applied, too.
        normalize: True: vectors are scaled to length 1; False: they are not.
        prompt: name of a prompt of the model, or a text, which is put before each text.
        batch_size: maximum number of rows computed together; short texts share rows.
        max_length: maximum number of tokens of a text.
        progress: whether a progress bar is shown on stderr.

    Raises:
        UserError: the pooling or the prompt is unknown, the model has no pooler, or an element is
            not a text.
    """
    texts = list(not_one_string(texts))
    predictor = EmbeddingPredictor(
        model,
        BatchOptions(batch_size, max_length),
        pooling=pooling,
        normalize=normalize,
        prompt=prompt,
    )
    vectors = np.empty((len(texts), predictor.width), np.float32)
    with progress_bar(lambda: len(texts), enabled=progress) as advance:
        for row, vector in enumerate(predict_examples(predictor, texts, advance=advance)):
            vectors[row] = vector
    return vectors


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

    The texts are read once, and only the best `top_k` are kept. The model's prompt "document",
    "passage" or "corpus" is put before them, and "query" before the query unless `prompt` says
    another; without such a prompt, its default. For the other arguments and for errors see `embed`.
    """
    require_at_least("top_k", top_k, 1)

    def predictor(prompt: str | None, names: tuple[str, ...]) -> EmbeddingPredictor:
        known = (name for name in names if name in model.description.vectors.prompts)
        options = BatchOptions(batch_size, max_length)
        prompt = next(known, None) if prompt is None else prompt
        return EmbeddingPredictor(model, options, pooling=pooling, prompt=prompt)

    (target,) = predict_examples(predictor(prompt, _OF_QUERY), checked_texts([query]))
    kind = model.description.vectors.similarity
    windows = predict_windows(Engine(predictor(None, _OF_TEXTS)), checked_texts(texts))
    scores = (
        (str(text), similarity_of_pair(np.stack([target, vector]), kind))
        for window in windows
        for text, vector in window.pairs
    )
    matches = (Match(index, text, score) for index, (text, score) in enumerate(scores))
    return heapq.nsmallest(top_k, matches, key=lambda match: (-match.score, match.index))
