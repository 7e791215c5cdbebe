"""How alike texts are: the cosine of their vectors (Sentence-BERT, Reimers and Gurevych, 2019)."""

import dataclasses
import heapq
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import SENTENCE_POOLING
from bert_jax.errors import UserError
from bert_jax.inference.features import embeddings
from bert_jax.inference.finite import finite
from bert_jax.inference.interface import Advance, Model, TextError

DEFAULT_POOLING = "mean"


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A text that was found.

    Attributes:
        index: which one of the texts it is, from 0.
        text: itself.
        score: the cosine with what was looked for.
    """

    index: int
    text: str
    score: float


def pair_vectors(
    model: Model,
    pairs: Iterable[tuple[str, str]],
    *,
    pooling: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    advance: Advance | None = None,
) -> Iterator[np.ndarray]:
    """The vectors of both texts of each pair, float32 [2, D], in order and in constant memory.

    Args:
        model: any model with an encoder.
        pairs: read once, a window ahead.
        pooling: see `LoadedModel.embed`; None: as `config.json` says, else the mean.
        batch_size: the most texts computed together.
        max_length: the most tokens of a text; None for as many as the model takes.
        advance: told the number of pairs after each batch.

    Raises:
        NotFiniteError: a vector is not finite.
        UserError: the pooling is unknown, or the model has no pooler.
        TextError: something is no pair of texts.
    """
    done = 0

    def halved(texts: int) -> None:
        nonlocal done
        if advance is not None:
            advance((done + texts) // 2 - done // 2)
        done += texts

    found = embeddings(
        model,
        _flat(pairs),
        pooling=pooling or stored_pooling(model.description),
        batch_size=batch_size,
        max_length=max_length,
        advance=halved,
    )
    return (finite(np.stack([vector, next(found)]), "the vectors of a pair") for vector in found)


def similarities(
    model: Model,
    pairs: Iterable[tuple[str, str]],
    *,
    pooling: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    advance: Advance | None = None,
) -> Iterator[float]:
    """The cosine of each pair, from -1 to 1.

    Arguments are those of `pair_vectors`.

    Raises:
        NotFiniteError, UserError: as `pair_vectors`.
    """
    vectors = pair_vectors(
        model,
        pairs,
        pooling=pooling,
        batch_size=batch_size,
        max_length=max_length,
        advance=advance,
    )
    return map(cosine, vectors)


def similarity(
    model: Model,
    texts: Iterable[str],
    others: Iterable[str] | None = None,
    *,
    pooling: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
) -> np.ndarray:
    """The cosine of every text with every other; see `LoadedModel.similarity`.

    Args:
        model: any model with an encoder.
        texts: n texts.
        others: m texts; None: the same texts.
        pooling: see `pair_vectors`.
        batch_size: the most texts computed together.
        max_length: the most tokens of a text; None for as many as the model takes.

    Returns:
        float32 [n, m], from -1 to 1.

    Raises:
        NotFiniteError: a vector is not finite.
        UserError: something is no text, the pooling is unknown, or the model has no pooler.
    """

    def vectors_of(some: Iterable[str]) -> np.ndarray:
        found = embeddings(
            model,
            _checked(some),
            pooling=pooling or stored_pooling(model.description),
            normalize=True,
            batch_size=batch_size,
            max_length=max_length,
        )
        vectors = np.array(list(found), np.float32).reshape(-1, model.config.hidden_size)
        return finite(vectors, "the vectors of the texts")

    left = vectors_of(texts)
    right = left if others is None else vectors_of(others)
    return np.clip(left @ right.T, -1, 1)  # rounding can make it 1.0000001


def search(
    model: Model,
    query: str,
    texts: Iterable[str],
    top_k: int = 10,
    *,
    pooling: str | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
) -> list[Match]:
    """The texts that are nearest to a query, the nearest first; of equal ones the earlier.

    Args:
        model: any model with an encoder.
        query: what is looked for.
        texts: read once; only the best are kept.
        top_k: how many, fewer where there are no more.
        pooling: see `pair_vectors`.
        batch_size: the most texts computed together.
        max_length: the most tokens of a text; None for as many as the model takes.

    Raises:
        NotFiniteError, UserError: as `similarity`; or `top_k` is below 1.
    """
    if top_k < 1:
        raise UserError(f"top_k is {top_k}; it must be at least 1")
    waiting: deque[str] = deque()  # texts that are read and have no vector yet

    def read() -> Iterator[str]:
        yield from _checked([query])
        for text in _checked(texts):
            waiting.append(text)
            yield text

    vectors = embeddings(
        model,
        read(),
        pooling=pooling or stored_pooling(model.description),
        batch_size=batch_size,
        max_length=max_length,
    )
    wanted = next(vectors)
    pairs = (finite(np.stack([wanted, vector]), "the vectors of a text") for vector in vectors)
    matches = (Match(index, waiting.popleft(), cosine(pair)) for index, pair in enumerate(pairs))
    return heapq.nsmallest(top_k, matches, key=lambda match: (-match.score, match.index))


def cosine(vectors: np.ndarray) -> float:
    """Of two vectors, float32 [2, D], in double precision; 0 if one of them is zero."""
    first, second = vectors.astype(np.float64)
    norms = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.clip(first @ second / norms, -1, 1)) if norms else 0.0


def stored_pooling(description: ModelDescription) -> str:
    """How a model was trained to make vectors of texts; the mean where nobody says.

    Raises:
        UserError: `config.json` has something else in its place.
    """
    value = description.other.get(SENTENCE_POOLING, DEFAULT_POOLING)
    if not isinstance(value, str):
        raise UserError(f"config.json: {SENTENCE_POOLING} is {value!r}; it must be a pooling")
    return value


def _flat(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The texts of all pairs, one after the other."""
    for index, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or [type(text) for text in pair] != [str, str]:
            raise TextError(f"{pair!r:.80} is no pair of texts; give two strings", index)
        yield from pair


def _checked(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):  # which is a list of letters, too
        raise UserError("the texts are one string; give a list of strings")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextError(f"text {index} is {text!r:.80}; give a string", index)
        yield text
