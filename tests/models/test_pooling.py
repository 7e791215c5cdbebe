"""Pooling of vectors that a person can add up; two texts through one encoder."""

import jax
import numpy as np

from bert_jax.models import pooling
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.models.layers import l2_normalize
from bert_jax.models.pooling import SentencePairs, masked_mean, pair_features

HIDDEN = np.float32(
    [
        [[1.0, -4.0], [3.0, -2.0], [5.0, -9.0], [99.0, 99.0]],
        [[2.0, 0.0], [99.0, 99.0], [99.0, 99.0], [99.0, 99.0]],
        [[7.0, 7.0], [7.0, 7.0], [7.0, 7.0], [7.0, 7.0]],
    ]
)
MASK = np.array(
    [
        [True, True, True, False],
        [True, False, False, False],
        [False, False, False, False],
    ]
)


def test_cls():
    np.testing.assert_array_equal(pooling.cls(HIDDEN), [[1.0, -4.0], [2.0, 0.0], [7.0, 7.0]])


def test_mean_leaves_padding_out():
    expected = [[3.0, -5.0], [2.0, 0.0], [0.0, 0.0]]
    np.testing.assert_array_equal(jax.jit(pooling.masked_mean)(HIDDEN, MASK), expected)


def test_max_leaves_padding_out():
    found = np.asarray(jax.jit(pooling.masked_max)(HIDDEN, MASK))
    np.testing.assert_array_equal(found[:2], [[5.0, -2.0], [2.0, 0.0]])
    assert np.isfinite(found[2]).all()


def test_unit_length():
    found = jax.jit(l2_normalize)(np.float32([[3.0, 4.0], [0.0, -2.0], [0.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.0, -1.0], [0.0, 0.0]], rtol=1e-6)


def test_features_by_hand():
    found = jax.jit(pair_features)(np.float32([[1.0, 5.0]]), np.float32([[3.0, 2.0]]))
    assert found.tolist() == [[1, 5, 3, 2, 2, 3]]


def test_each_text_of_a_pair_has_its_own_vector(tiny_config):
    module = SentencePairs(tiny_config, Execution(), masked_mean, labels=3)
    generator = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: np.float32(generator.normal(size=leaf.shape)), abstract_params(module)
    )
    assert params["classifier"]["kernel"].shape == (3 * 16, 3)
    assert set(params["bert"]) == {"embeddings", "encoder"}
    ids = np.array([[[2, 10, 3, 0], [2, 6, 18, 3]], [[0] * 4, [0] * 4]])
    mask = np.array([[[1, 1, 1, 0], [1, 1, 1, 1]], [[0] * 4, [0] * 4]])
    apply = jax.jit(lambda ids: module.apply({"params": params}, ids, None, mask))
    output = jax.tree.map(np.asarray, apply(ids))
    assert output.vectors.shape == (2, 2, 16)
    assert output.logits.shape == (2, 3)
    assert (output.vectors[1] == 0).all()  # texts without tokens
    # A change of the second text and of the padding after the first changes the second vector.
    ids[0, 1, 1], ids[0, 0, 3] = 7, 9
    changed = jax.tree.map(np.asarray, apply(ids))
    assert (changed.vectors[0, 0] == output.vectors[0, 0]).all()
    assert (changed.vectors[0, 1] != output.vectors[0, 1]).any()
    assert (changed.logits[0] != output.logits[0]).any()
