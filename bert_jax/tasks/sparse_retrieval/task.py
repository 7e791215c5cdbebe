"""The weights of words, compared by their dot product, and the regularisers of a training.

A query and a document are compared by the dot product of their vectors. To the loss of the ranking
two regularisers are added, which make the vectors sparse: the FLOPS of the queries' and of the
documents' vectors (Paria et al., 2020, https://arxiv.org/abs/2004.05665, section 4). They depend on
the step.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.pipeline import Batches
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.models.execution import Execution
from bert_jax.models.heads.sparse_vectors import SparseEncoder
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.base.retrieval.spec import retrieval_spec
from bert_jax.tasks.base.retrieval.task import RetrievalTask
from bert_jax.tasks.base.task import ComputedModel, Sums, weighted_sums
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.sparse_retrieval.options import SparseData
from bert_jax.tasks.sparse_vectors import sparse_description
from bert_jax.tokenization import Tokenizer

SHARE = "regulariser_share"
"""Key of a batch: the share of the regularisers in its step, float32 [B]."""


@dataclasses.dataclass(frozen=True)
class SparseInteraction(Interaction):
    """The weights of words, compared by their dot product.

    Attributes:
        data: factors and threshold of the regularisers.
    """

    regularisers = ("query_flops", "document_flops")

    data: SparseData

    def make_module(self, execution: Execution) -> nn.Module:
        vectors = sparse_description(self.description)
        return SparseEncoder(
            self.description.config,
            execution,
            pooling_strategy=vectors.pooling_strategy,
            activation_function=vectors.activation_function,
        )

    def scores(self, query: jax.Array, document: jax.Array) -> jax.Array:
        document = document.reshape(-1, document.shape[-1])  # CKV → MV
        return jnp.inner(query, document, precision=jax.lax.Precision.HIGHEST)

    def regulariser(
        self, vectors: RankedVectors, batch: Mapping[str, jax.Array]
    ) -> dict[str, jax.Array]:
        query, document = vectors
        document = document.reshape(-1, document.shape[-1])
        share, least = batch[SHARE].max(), self.data.flops_threshold
        query_flops = flops(query, batch["weights"] > 0, least)
        document_flops = flops(document, batch["document_numbers"].reshape(-1) >= 0, least)
        return {
            "query_flops": share * self.data.query_flops * query_flops,
            "document_flops": share * self.data.document_flops * document_flops,
        }


def flops(weights: jax.Array, is_text: jax.Array, threshold: int = 0) -> jax.Array:
    """Σ_v (mean over the texts of |w_v|)², a scalar.

    Args:
        weights: float32 [R, V], 0 or above.
        is_text: bool [R], False for padding.
        threshold: a text with at most so many words counts as one without any; 0: all count.
    """
    counts = is_text & ((weights > 0).sum(axis=1) > threshold) if threshold else is_text
    total = jnp.where(counts[:, None], weights, 0).sum(axis=0)  # V
    return jnp.square(total / is_text.sum().clip(1)).sum()


class SparseRetrievalTask(RetrievalTask):
    """Retrieval with regularisers, which depend on the step: a batch has their share of it."""

    data: SparseData

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        config = self.description.config
        head = config.hidden_size**2 + config.vocab_size * config.embedding_width
        models = super().computed_models
        return tuple(dataclasses.replace(model, flops_per_token=2.0 * head) for model in models)

    def loss(self, params: Any, outputs: RankedVectors, batch: dict[str, jax.Array]) -> Sums:
        """With the mean number of words of a query, and of a document."""
        sums = super().loss(params, outputs, batch)
        query, document = ((weights > 0).sum(axis=-1) for weights in outputs)
        documents = (batch["document_numbers"] >= 0).sum(axis=1)
        words = {"query_words": query, "document_words": document.sum(axis=1) / documents.clip(1)}
        return {**sums, "": sums[""] | weighted_sums(batch["weights"], words)}

    def train_batches(self, start: int, stop: int, *, host: int, hosts: int) -> Batches:
        batches = super().train_batches(start, stop, host=host, hosts=hosts)
        for number, batch in enumerate(batches, start):
            yield batch | {SHARE: np.full(len(batch["weights"]), self._share(number), np.float32)}

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        shapes = super().batch_shapes()
        return shapes | {SHARE: shapes["weights"]}

    def _share(self, step: int) -> float:
        """The share of the regularisers in a step, from 0 to 1."""
        options = self.options
        steps = options.steps or math.ceil(options.epochs * self.batches.batches_per_epoch)
        rising = int(self.data.flops_ramp * steps)
        return min(step / rising, 1) ** 2 if rising else 1


def _interaction(
    config: TaskConfig[SparseData], model_init: ModelInit, tokenizer: Tokenizer
) -> SparseInteraction:
    description = config.data.describe(model_init, tokenizer)
    return SparseInteraction(description, tokenizer, config.data)


TRAIN = retrieval_spec(SparseData, _interaction, batch_size=64, task=SparseRetrievalTask)
