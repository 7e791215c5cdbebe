"""Packed rows have the outputs, gradients and dropout of unpacked rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.row_packing import RowPacker
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.models.heads.classification import ClassificationModel
from bert_jax.models.heads.multiple_choice import MultipleChoiceModel
from bert_jax.models.heads.question_answering import QuestionAnsweringModel
from bert_jax.models.heads.tagging import TaggingModel
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.packed_rows import PackedRows
from bert_jax.models.sentence_pairs import SentencePairs
from tests.random_params import random_params

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


def visible_part(leaf, mask):
    """0 for padding, and for rows of padding alone, which no task reads."""
    seen = mask if leaf.shape[:2] == mask.shape else mask.any(axis=-1)
    return seen.reshape(seen.shape + (1,) * (leaf.ndim - seen.ndim))


MODELS = {
    "classification": (ClassificationModel(CONFIG), (8,)),
    "tagging": (TaggingModel(CONFIG), (8,)),
    "question answering": (QuestionAnsweringModel(CONFIG), (8,)),
    "multiple choice": (MultipleChoiceModel(CONFIG), (4, 2)),
    "similarity": (SentencePairs(CONFIG, Execution(), TextPooling()), (4, 2)),
}


# In the fast tier a head on the vectors of the tokens; two texts of 8 tokens fit a row of 16
# positions, and none of 12.
EIGHTS = {"attention_mask": (np.arange(12) < np.full((8, 1), 8)).astype(np.int32)}
SLOW = [(name, [], (4, 12)) for name in MODELS]


@pytest.mark.parametrize(
    ("name", "samples", "packed_shape"),
    [
        ("tagging", [EIGHTS], (4, 16)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
def test_outputs_and_gradients(name, samples, packed_shape):
    module, rows = MODELS[name]
    draw = np.random.default_rng(2)
    mask = (np.arange(12) < np.array(LENGTHS)[:, None]).astype(np.int32)
    batch = {
        "input_ids": draw.integers(1, 40, mask.shape) * mask,
        "token_type_ids": draw.integers(0, 2, mask.shape) * mask,
        "attention_mask": mask,
    }
    inputs = {key: array.reshape(*rows, 12) for key, array in batch.items()}
    packed = RowPacker(samples).pack(batch)
    assert packed["pack_indices"].shape == (1, *packed_shape)
    packed_rows = PackedRows.of_batch({key: jnp.asarray(array) for key, array in packed.items()})
    params = random_params(module, all_differ=True)

    def loss(params, packed_rows):
        output = module.apply(
            {"params": params}, **inputs, packed_rows=packed_rows, deterministic=False,
            rngs={"dropout": jax.random.key(3)},
        )  # fmt: skip
        mask = inputs["attention_mask"]
        leaves = [leaf * visible_part(leaf, mask) for leaf in jax.tree.leaves(output)]
        return sum((leaf**2).sum() for leaf in leaves), leaves

    evaluate = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, expected), expected_gradients = evaluate(params, None)
    (_, outputs), gradients = evaluate(params, packed_rows)
    for value, truth in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(value, truth, atol=1e-5)
    for value, truth in zip(*map(jax.tree.leaves, (gradients, expected_gradients)), strict=True):
        np.testing.assert_allclose(value, truth, atol=2e-4, rtol=2e-4)
    assert float(sum(abs(leaf).sum() for leaf in expected)) > 1
