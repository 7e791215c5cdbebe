"""What differs between dual encoders, late interaction and sparse vectors; the rest is shared.

A task of retrieval is an `Interaction`, the data, and a loss that sees scores only.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Text
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.models.execution import Execution
from bert_jax.search.hits import Ranked
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor
from bert_jax.tasks.base.vector_kinds import vector_kind
from bert_jax.tasks.embed import TextPreparation
from bert_jax.tokenization import Tokenizer

# Queries that are compared with all documents at once.
_QUERIES = 64


@dataclasses.dataclass(frozen=True)
class Interaction(abc.ABC):
    """How queries and documents become vectors, and how these are compared.

    Attributes:
        description: contents of the exported model directory.
        tokenizer: tokenizer of the model.
        regularisers: names of the values of `regulariser`.
        packs_rows: whether the module takes packed rows, where padding has hidden states of zeros.
        are_cosines: whether scores are cosines, from -1 to 1.
        cosine_remedy: the keys of a config for other scores, where they may be cosines.
    """

    regularisers: ClassVar[tuple[str, ...]] = ()
    packs_rows: ClassVar[bool] = False
    cosine_remedy: ClassVar[str] = ""

    description: ModelDescription
    tokenizer: Tokenizer

    @property
    def are_cosines(self) -> bool:
        return False

    @abc.abstractmethod
    def make_module(self, execution: Execution) -> nn.Module:
        """The module that is trained, see `models.dual_encoder.Towers`."""

    def prepare(self, side: str) -> TextPreparation:
        """What is done to a text, of one of `SIDES`, before it is tokenised: its prompt."""
        vectors = self.description.stored_vectors or self.description.vectors
        prompt = vectors.prompt(vectors.prompt_name(side))
        return TextPreparation(vectors, prompt, self.tokenizer)

    def arrays(self, side: str, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays of a batch that the module takes, from padded rows of a side.

        Args:
            side: "query" or "document".
            rows: `input_ids`, `token_type_ids`, `attention_mask`, int32 [B, …, T].
        """
        return rows

    @abc.abstractmethod
    def scores(self, query: Any, document: Any) -> jax.Array:
        """The score of every query with every document, float32 [B, C · K].

        Args:
            query: vectors of B queries, see `RankedVectors`.
            document: vectors of the documents of C queries, [C, K, …]; document k of query c is
                in column c · K + k.
        """

    def own_scores(self, vectors: RankedVectors) -> jax.Array:
        """The score of each query with its own documents, float32 [B, K]."""

        def query_scores(query: Any, document: Any) -> jax.Array:
            one = jax.tree.map(lambda array: array[None], (query, document))
            return self.scores(*one)[0]

        return jax.vmap(query_scores)(*vectors)

    def views(self, vectors: RankedVectors) -> Sequence[RankedVectors]:
        """The vectors that the loss is computed of; the losses of several are added."""
        return [vectors]

    def regulariser(
        self, vectors: RankedVectors, batch: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Values that are added to the loss, by name; means over the batch, float32 scalars."""
        return {}

    def predictor(self, model: Model, options: BatchOptions, side: str) -> Predictor[Text, Any]:
        """Makes the vectors of texts of a side for an evaluation."""
        return vector_kind(self.description).predictor(model, options, side)

    def similarities(self, queries: Sequence[Any], documents: Sequence[Any]) -> np.ndarray:
        """The scores of predicted vectors, float32 [queries, documents], on the host."""
        return vector_kind(self.description).similarities(queries, documents)

    def search(
        self, queries: Sequence[Any], documents: Sequence[Any], top_k: int, mesh: Mesh
    ) -> Ranked:
        """The `top_k` best documents of each query, from predicted vectors."""
        scores, numbers = [], []
        for start in range(0, len(queries), _QUERIES):
            block = self.similarities(queries[start : start + _QUERIES], documents)
            best = np.argsort(-block, axis=1, kind="stable")[:, :top_k]
            scores.append(np.take_along_axis(block, best, axis=1))
            numbers.append(best)
        return np.concatenate(scores), np.concatenate(numbers)
