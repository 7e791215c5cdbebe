"""How each kind of vectors is made of queries and documents, and compared."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError, UserError
from bert_jax.metrics.similarity import maxsim, similarities
from bert_jax.models.head import find_head
from bert_jax.models.heads.sparse_vectors import SparseVectors
from bert_jax.models.heads.token_vectors import MEAN_MAXSIM, TokenVectors
from bert_jax.models.vectors import QUERY
from bert_jax.search import sparse
from bert_jax.search.vector_files import TokenArrays
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor
from bert_jax.tasks.embed import EmbeddingPredictor, EmbedPredictOptions
from bert_jax.tasks.sparse_vectors import (
    SparsePredictOptions,
    SparsePredictor,
    SparseVector,
    dot_products,
    sparse_description,
)
from bert_jax.tasks.token_vectors import TokenVectorsOfText, TokenVectorsPredictor, token_vectors_of


class VectorKind(abc.ABC):
    """A kind of vectors."""

    @abc.abstractmethod
    def predictor(
        self, model: Model, options: BatchOptions, side: str, prompt: str | None = None
    ) -> Predictor[Any, Any]:
        """Makes the vectors of texts of a side, `QUERY` or `DOCUMENT`.

        The model's prompt for the side is put before them, if it has one; else its default. A
        `prompt` replaces it: a name or a text, see `LoadedModel.embed`.
        """

    @abc.abstractmethod
    def similarities(self, queries: Sequence[Any], documents: Sequence[Any]) -> np.ndarray:
        """The scores of all pairs of predicted vectors, float32 [queries, documents]."""


@dataclasses.dataclass(frozen=True)
class TextKind(VectorKind):
    """One vector for each text.

    Attributes:
        similarity: one of `SIMILARITIES`.
        pooling, normalize: see `LoadedModel.embed`.
    """

    similarity: str
    pooling: str | Sequence[str] | None = None
    normalize: bool | None = None

    def predictor(
        self, model: Model, options: BatchOptions, side: str, prompt: str | None = None
    ) -> EmbeddingPredictor:
        how = EmbedPredictOptions(
            options.batch_size,
            options.max_length,
            pooling=self.pooling,
            prompt=prompt,
            side=side,
            normalize=self.normalize,
        )
        return EmbeddingPredictor(model, how)

    def similarities(
        self, queries: Sequence[np.ndarray], documents: Sequence[np.ndarray]
    ) -> np.ndarray:
        return similarities(np.stack(queries), np.stack(documents), self.similarity)

    def stacked(self, vectors: Sequence[np.ndarray], width: int) -> np.ndarray:
        """Predicted vectors of a width as float32 [n, X]."""
        return np.stack(vectors)


@dataclasses.dataclass(frozen=True)
class SparseKind(VectorKind):
    """Weights of words, compared by their dot product."""

    def predictor(
        self, model: Model, options: BatchOptions, side: str, prompt: str | None = None
    ) -> SparsePredictor:
        model = model.side_model(side)
        if prompt is None:
            prompt = sparse_description(model.description).prompt_name(side)
        how = SparsePredictOptions(options.batch_size, options.max_length, prompt=prompt)
        return SparsePredictor(model, how)

    def similarities(
        self, queries: Sequence[SparseVector], documents: Sequence[SparseVector]
    ) -> np.ndarray:
        return dot_products(queries, documents)

    def stacked(self, vectors: Sequence[SparseVector], width: int) -> Any:
        """Predicted vectors of a width as a sparse matrix of SciPy, float32 [n, V]."""
        return sparse.matrix(((vector.ids, vector.weights) for vector in vectors), width)


@dataclasses.dataclass(frozen=True)
class TokenKind(VectorKind):
    """Vectors of tokens, compared by late interaction.

    Attributes:
        similarity: one of `SIMILARITIES` of `models.heads.token_vectors`.
    """

    similarity: str

    def predictor(
        self, model: Model, options: BatchOptions, side: str, prompt: str | None = None
    ) -> TokenVectorsPredictor:
        if prompt is not None:
            rule = "of late interaction, the prompts are a part of the model; leave it out"
            raise OptionError("prompt", prompt, rule)
        if side == QUERY:  # the length of queries is a part of the model
            options = dataclasses.replace(options, max_length=None)
        return TokenVectorsPredictor(model.side_model(side), options, side=side)

    def similarities(
        self, queries: Sequence[TokenVectorsOfText], documents: Sequence[TokenVectorsOfText]
    ) -> np.ndarray:
        left, right = ([text.vectors for text in texts] for texts in (queries, documents))
        return maxsim(left, right, mean=self.similarity == MEAN_MAXSIM)

    def stacked(self, vectors: Sequence[TokenVectorsOfText], width: int) -> TokenArrays:
        """Predicted vectors of a width, those of one text after the other."""
        return TokenArrays.joined([text.vectors for text in vectors], width)


def check_makes_vectors(description: ModelDescription, remedy: str) -> None:
    """Raises UserError for a model of another task whose files describe no vectors."""
    head = description.head
    makes_none = head is not None and find_head(head).makes_vectors is False
    if makes_none and description.stored_vectors is None:
        problem = f"this {description.class_name} was not trained to make vectors of texts"
        raise UserError(f"{problem}, and has no files of sentence-transformers; {remedy}")


def vector_kind(description: ModelDescription) -> VectorKind:
    """The kind that a model's files describe; without them, vectors of texts.

    Raises:
        UserError: the files have vectors of tokens that are not supported.
    """
    match description.stored_vectors:
        case SparseVectors():
            return SparseKind()
        case TokenVectors():
            return TokenKind(token_vectors_of(description).similarity)
    return TextKind(description.vectors.similarity)
