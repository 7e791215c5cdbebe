"""The task of a config: one encoder, or one each for queries and documents."""

import functools
from collections.abc import Callable

import flax.linen as nn

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.retrieval.spec import retrieval_spec
from bert_jax.tasks.base.retrieval.towers import (
    DocumentEncoderOptions,
    both_parts,
    document_part,
)
from bert_jax.tasks.base.train_spec import TaskConfig, TrainedPart
from bert_jax.tasks.retrieval.interaction import DualInteraction, dual_encoder
from bert_jax.tasks.retrieval.options import DualEncoderData
from bert_jax.tokenization import Tokenizer


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
