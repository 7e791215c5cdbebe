"""The vectors of tokens, compared by MaxSim; their lengths are in the model's description."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.execution import Execution
from bert_jax.models.heads.token_vectors import MEAN_MAXSIM, TokenTowers, TokenVectors
from bert_jax.models.maxsim import jax_maxsim
from bert_jax.models.vectors import DOCUMENT, QUERY
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.base.retrieval.spec import retrieval_spec
from bert_jax.tasks.base.retrieval.task import RetrievalTask
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.embed import TextPreparation
from bert_jax.tasks.late_interaction.options import LateInteractionData
from bert_jax.tasks.token_vectors import TokenRows, token_vectors_of
from bert_jax.tokenization import Tokenizer


class LateInteraction(Interaction):
    """The vectors of tokens, compared by MaxSim."""

    cosine_remedy = "{data.similarity=maxsim}, or {data.normalize=false}"

    @property
    def stored(self) -> TokenVectors:
        """How vectors are made."""
        return token_vectors_of(self.description)

    @property
    def are_cosines(self) -> bool:
        """The means of cosines; their sums are none."""
        return self.stored.similarity == MEAN_MAXSIM and self.stored.ends_in_normalize

    def make_module(self, execution: Execution) -> nn.Module:
        return TokenTowers(self.description.config, execution, modules=self.stored.modules)

    def prepare(self, side: str) -> TextPreparation:
        return TokenRows(self.stored, self.tokenizer, side).prepare

    def arrays(self, side: str, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return TokenRows(self.stored, self.tokenizer, side).arrays(rows)

    def scores(self, query: Any, document: Any) -> jax.Array:
        vectors, mask = query  # BTX, BT
        # CKSX → MSX
        documents, counts = (array.reshape(-1, *array.shape[2:]) for array in document)
        scores = jax_maxsim(vectors, mask > 0, documents, counts > 0)
        if self.stored.similarity == MEAN_MAXSIM:
            return scores / jnp.maximum(mask.sum(axis=1, keepdims=True), 1)
        return scores


class LateInteractionTask(RetrievalTask):
    """Retrieval with the lengths of the texts in the description of the model."""

    interaction: LateInteraction

    def stored_length(self) -> int | None:
        limit = token_vectors_of(self.description).limit(DOCUMENT)
        return limit or self.tokenizer.model_max_length

    def limit(self, side: str) -> int:
        stored = self.interaction.stored
        most = self.description.config.max_length - (stored.appended if side == QUERY else 0)
        return min(stored.limit(side) or self.options.length, most)


def _interaction(
    config: TaskConfig[LateInteractionData], model_init: ModelInit, tokenizer: Tokenizer
) -> LateInteraction:
    # A synthetic vocabulary has no markers.
    markers = config.data.markers and model_init.tokenizer is not None
    vectors = dataclasses.replace(config.data, markers=markers).vectors(model_init, tokenizer)
    if vectors.markers:
        tokenizer = tokenizer.with_special_tokens(vectors.markers)
    description = model_init.describe(
        tokenizer, "encoder", add_pooling_layer=False, vectors=vectors
    )
    return LateInteraction(description, tokenizer)


TRAIN = retrieval_spec(LateInteractionData, _interaction, batch_size=32, task=LateInteractionTask)
