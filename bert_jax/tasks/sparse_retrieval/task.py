"""The task of a config, with regularisers that depend on the step."""

import dataclasses
import math
from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from bert_jax.data.pipeline import Batch
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.spec import retrieval_spec
from bert_jax.tasks.base.retrieval.task import RetrievalTask
from bert_jax.tasks.base.task import ComputedModel, Sums, weighted_sums
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.sparse_retrieval.interaction import SHARE, SparseInteraction
from bert_jax.tasks.sparse_retrieval.options import SparseData
from bert_jax.tokenization import Tokenizer


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

    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
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
    data = config.data
    return SparseInteraction(
        data.describe(model_init, tokenizer),
        tokenizer,
        data.query_flops,
        data.document_flops,
        data.flops_threshold,
    )


TRAIN = retrieval_spec(SparseData, _interaction, batch_size=64, task=SparseRetrievalTask)
