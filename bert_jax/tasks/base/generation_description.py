"""What the files of a model that is trained to write say about generation."""

import dataclasses
from typing import Any

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.head import find_head, with_fields
from bert_jax.models.heads.text_to_text import start_token
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tokenization import Tokenizer


def describe_generating(model_init: ModelInit, tokenizer: Tokenizer, head: str) -> ModelDescription:
    """The model that a task trains, with all that generation needs as fields of `config.json`.

    Args:
        model_init: the model that the training starts from. If it generates, its fields remain.
        tokenizer: tokenizer of the model, which knows the ends of a text.
        head: a head that generates.

    Raises:
        UserError: see `ModelInit.describe`.
    """
    description = model_init.describe(tokenizer, head, num_labels=None)
    special, source = tokenizer.special_ids, model_init.description
    known = {"bos_token_id": special.bos, "eos_token_id": special.eos, "pad_token_id": special.pad}
    fields: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    config = description.config
    if find_head(head).compared.has_decoder:
        # Where a file lacks it, transformers forces the end token of published models.
        fields["forced_eos_token_id"] = None
        config = with_fields(config, {"decoder_start_token_id": start_token(config)})
    if source is not None and source.generation is not None:
        fields |= source.generation.effective_fields
    return dataclasses.replace(description, config=config, other={**description.other, **fields})
