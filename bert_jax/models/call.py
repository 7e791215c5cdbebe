"""The call of a model for a batch: the same in training, evaluation and prediction."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from bert_jax.models.encoder import EncoderOutputs
from bert_jax.models.packed_rows import PackedRows

# The arrays of a batch that models read; a batch has those that its model takes.
_INPUTS = (
    "input_ids",
    "token_type_ids",
    "attention_mask",
    "position_ids",
    "segment_ids",
    "masked_lm_positions",
    "next_sentence_positions",
    "span_left_positions",
    "span_right_positions",
    "row_indices",
)


def model_inputs(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a model for a batch, by name; arrays that no model reads are left out."""
    inputs = {name: batch[name] for name in _INPUTS if name in batch}
    packed_rows = PackedRows.of_batch(batch)
    return inputs if packed_rows is None else inputs | {"packed_rows": packed_rows}


def apply_model(
    module: nn.Module,
    params: Any,
    inputs: Mapping[str, Any],
    dropout_key: jax.Array | None = None,
    encoder_outputs: EncoderOutputs | None = None,
) -> Any:
    """The outputs of a model.

    Args:
        module: a model with any head.
        params: its parameters.
        inputs: its arguments, as from `model_inputs`.
        dropout_key: key of the dropout masks; None: without dropout.
        encoder_outputs: see `architectures`; None: the outputs of the head alone.
    """
    options: dict[str, Any] = (
        {} if encoder_outputs is None else {"encoder_outputs": encoder_outputs}
    )
    return module.apply(
        {"params": params},
        **inputs,
        **options,
        deterministic=dropout_key is None,
        rngs=None if dropout_key is None else {"dropout": dropout_key},
    )
