"""The weights of words, compared by their dot product, and the regularisers of a training.

A query and a document are compared by the dot product of their vectors. To the loss of the ranking
two regularisers are added, which make the vectors sparse: the FLOPS of the queries' and of the
documents' vectors (Paria et al., 2020, https://arxiv.org/abs/2004.05665, section 4).
"""

import dataclasses
from collections.abc import Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.models.execution import Execution
from bert_jax.models.heads.sparse_vectors import SparseEncoder
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.sparse_vectors import sparse_description
from bert_jax.tokenization import Tokenizer

SHARE = "regulariser_share"
"""Key of a batch: the share of the regularisers in its step, float32 [B]."""


@dataclasses.dataclass(frozen=True)
class SparseInteraction(Interaction):
    """The weights of words, compared by their dot product.

    Attributes:
        description, tokenizer: see `Interaction`.
        query_flops, document_flops, flops_threshold: see `SparseData`.
    """

    regularisers = ("query_flops", "document_flops")

    description: ModelDescription
    tokenizer: Tokenizer
    query_flops: float
    document_flops: float
    flops_threshold: int

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
        share, least = batch[SHARE].max(), self.flops_threshold
        of_queries = flops(query, batch["weights"] > 0, least)
        of_documents = flops(document, batch["document_numbers"].reshape(-1) >= 0, least)
        return {
            "query_flops": share * self.query_flops * of_queries,
            "document_flops": share * self.document_flops * of_documents,
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
