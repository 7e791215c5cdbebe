"""Dual encoders: a vector for each text, compared by one of `SIMILARITIES`; one encoder or two."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError
from bert_jax.models.dual_encoder import DOCUMENT_TOWER, DualEncoder, RankedVectors
from bert_jax.models.execution import Execution
from bert_jax.models.layers import jax_similarities, l2_normalize
from bert_jax.models.vectors import DOCUMENT
from bert_jax.search.exact import ExactSearcher
from bert_jax.search.hits import Ranked
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.base.retrieval.spec import retrieval_spec
from bert_jax.tasks.base.retrieval.towers import DocumentEncoderOptions, both_parts, document_part
from bert_jax.tasks.base.train_spec import TaskConfig, TrainedPart
from bert_jax.tasks.retrieval.options import DualEncoderData
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class DualInteraction(Interaction):
    """One vector for each text.

    Attributes:
        towers: 2 with a separate encoder of documents, else 1.
        widths: the loss is the sum of the losses of so many first values of the vectors, scaled to
            length 1 (Kusupati et al., 2022, https://arxiv.org/abs/2205.13147); (): of the vectors.
    """

    packs_rows = True
    cosine_remedy = "{data.similarity=dot} and {data.normalize=false}, without {data.matryoshka}"

    towers: int = 1
    widths: tuple[int, ...] = ()

    @property
    def are_cosines(self) -> bool:
        """Also dot products of vectors of length 1."""
        vectors = self.description.vectors
        is_normal = bool(self.widths) or vectors.ends_in_normalize
        return vectors.similarity == "cosine" or (vectors.similarity == "dot" and is_normal)

    def make_module(self, execution: Execution) -> nn.Module:
        return dual_encoder(self.description, execution, self.towers)

    def arrays(self, side: str, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """With a mask without the tokens of a prompt that does not count."""
        length = rows["input_ids"].shape[-1]
        prompt = self.prepare(side).prompt_length(length)
        if not prompt:
            return rows
        return {**rows, "vector_mask": rows["attention_mask"] * (np.arange(length) >= prompt)}

    def scores(self, query: jax.Array, document: jax.Array) -> jax.Array:
        document = document.reshape(-1, document.shape[-1])  # CKX → MX
        return jax_similarities(query, document, self.description.vectors.similarity)

    def views(self, vectors: RankedVectors) -> Sequence[RankedVectors]:
        if not self.widths:
            return [vectors]
        return [
            jax.tree.map(lambda array, width=width: l2_normalize(array[..., :width]), vectors)
            for width in self.widths
        ]

    def predictor(self, model: Model, options: BatchOptions, side: str) -> Predictor[Any, Any]:
        if self.towers == 2 and side == DOCUMENT:
            model = dataclasses.replace(model, params=model.params[DOCUMENT_TOWER])
        return super().predictor(model, options, side)

    def search(
        self, queries: Sequence[Any], documents: Sequence[Any], top_k: int, mesh: Mesh
    ) -> Ranked:
        kind = self.description.vectors.similarity
        searcher = ExactSearcher(np.stack(documents), similarity=kind, mesh=mesh)
        return searcher.search(np.stack(queries), top_k)


def dual_encoder(description: ModelDescription, execution: Execution, towers: int) -> DualEncoder:
    """The module of a description, with one encoder or two."""
    vectors = description.vectors
    parts = (vectors.poolings, vectors.modules, vectors.truncate_dim)
    return DualEncoder(description.config, execution, towers, *parts)


def _interaction(
    config: TaskConfig[DualEncoderData], model_init: ModelInit, tokenizer: Tokenizer
) -> DualInteraction:
    description = config.data.describe(model_init, tokenizer)
    towers = config.section(DocumentEncoderOptions).towers
    return DualInteraction(description, tokenizer, towers, config.data.matryoshka)


def _part(
    make: Callable[[ModelDescription, nn.Module], TrainedPart],
    name: str,
    config: TaskConfig[DualEncoderData],
    description: ModelDescription,
    execution: Execution,
) -> TrainedPart:
    if not config.section(DocumentEncoderOptions).separate:
        raise OptionError("part", name, "the run has one encoder for queries and documents")
    return make(description, dual_encoder(description, execution, towers=2))


_PARTS = {"document": document_part, "both": both_parts}

TRAIN = retrieval_spec(
    DualEncoderData,
    _interaction,
    batch_size=64,
    parts={name: functools.partial(_part, make, name) for name, make in _PARTS.items()},
)
