"""The task of a config, whose texts have the lengths in the description of its model."""

import dataclasses

from bert_jax.models.vectors import DOCUMENT, QUERY
from bert_jax.tasks.base.labelled_task import TrainedModel
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.spec import retrieval_spec
from bert_jax.tasks.base.retrieval.task import RetrievalTask
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.late_interaction.interaction import LateInteraction
from bert_jax.tasks.late_interaction.options import LateInteractionData
from bert_jax.tasks.token_vectors import token_vectors_of
from bert_jax.tokenization import Tokenizer


class LateInteractionTask(RetrievalTask):
    """Retrieval with the lengths of the texts in the description of the model."""

    interaction: LateInteraction

    def stored_length(self, model: TrainedModel) -> int | None:
        limit = token_vectors_of(model.description).limit(DOCUMENT)
        return limit or model.tokenizer.model_max_length

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
