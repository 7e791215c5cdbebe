"""Rows computed together give what each gives by itself: outputs, gradients and dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.row_packing import RowPacker
from bert_jax.models.architectures import (
    ClassificationModel,
    MultipleChoiceModel,
    QuestionAnsweringModel,
    TaggingModel,
)
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.packed_rows import PackedRows
from bert_jax.models.pooling import SentencePairs

CONFIG = EncoderConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=12,
    num_labels=3,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.3,
)
LENGTHS = [7, 2, 12, 5, 3, 0, 4, 9]


def mean(hidden, mask):
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True).clip(1)


def visible_part(leaf, mask):
    """0 for padding, and for rows of nothing else, which no task reads."""
    seen = mask if leaf.shape[:2] == mask.shape else mask.any(axis=-1)
    return seen.reshape(seen.shape + (1,) * (leaf.ndim - seen.ndim))


MODELS = {
    "classification": (ClassificationModel(CONFIG), (8,)),
    "tagging": (TaggingModel(CONFIG), (8,)),
    "question answering": (QuestionAnsweringModel(CONFIG), (8,)),
    "multiple choice": (MultipleChoiceModel(CONFIG), (4, 2)),
    "similarity": (SentencePairs(CONFIG, Execution(), mean), (4, 2)),
}


def test_rows_longer_than_those_of_the_batch():
    # Two texts of 8 tokens fit a row of 16 slots, and none of 12.
    eights = {"attention_mask": (np.arange(12) < np.full((8, 1), 8)).astype(np.int32)}
    outputs_and_gradients_are_those_of_the_batch("tagging", False, RowPacker([eights]), (4, 16))


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(
    "name",
    # A head for each row, and one for each token, in the fast tier.
    [
        name
        if name in ("multiple choice", "tagging")
        else pytest.param(name, marks=pytest.mark.slow)
        for name in MODELS
    ],
)
def test_outputs_and_gradients(name, deterministic):
    outputs_and_gradients_are_those_of_the_batch(name, deterministic, RowPacker(), (4, 12))


def outputs_and_gradients_are_those_of_the_batch(name, deterministic, row_packer, packed_shape):
    module, rows = MODELS[name]
    draw = np.random.default_rng(2)
    mask = (np.arange(12) < np.array(LENGTHS)[:, None]).astype(np.int32)
    batch = {
        "input_ids": draw.integers(1, 40, mask.shape) * mask,
        "token_type_ids": draw.integers(0, 2, mask.shape) * mask,
        "attention_mask": mask,
    }
    inputs = {key: jnp.asarray(array.reshape(*rows, 12)) for key, array in batch.items()}
    packed = row_packer.pack(batch)
    assert packed["pack_indices"].shape == packed_shape
    packed_rows = PackedRows(
        jnp.asarray(packed["pack_indices"]), jnp.asarray(packed["unpack_indices"])
    )
    shape = {"input_ids": jnp.zeros((*rows, 12), jnp.int32)}
    params = module.init(jax.random.key(0), **shape)["params"]
    # Biases are 0 at first, and zeros could hide an error.
    params = jax.tree.map(
        lambda leaf: leaf + 0.1 * np.cos(np.arange(leaf.size)).reshape(leaf.shape), params
    )

    def loss(params, packed_rows):
        output = module.apply(
            {"params": params}, **inputs, packed_rows=packed_rows, deterministic=deterministic,
            rngs={"dropout": jax.random.key(3)},
        )  # fmt: skip
        mask = inputs["attention_mask"]
        found = [leaf * visible_part(leaf, mask) for leaf in jax.tree.leaves(output)]
        return sum((leaf**2).sum() for leaf in found), found

    evaluate = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, expected), wanted = evaluate(params, None)
    (_, found), gradients = evaluate(params, packed_rows)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    for one, other in zip(*map(jax.tree.leaves, (gradients, wanted)), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4, rtol=2e-4)
    assert float(sum(abs(leaf).sum() for leaf in expected)) > 1
