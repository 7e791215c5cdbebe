"""Two texts through one encoder, and what a classifier reads of them."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.models.pooling import SentencePairs, masked_mean, pair_features


def test_features_by_hand():
    found = pair_features(jnp.array([[1.0, 5.0]]), jnp.array([[3.0, 2.0]]))
    assert found.tolist() == [[1, 5, 3, 2, 2, 3]]


def test_the_module_pools_each_text_by_itself(tiny_config):
    module = SentencePairs(tiny_config, Execution(), masked_mean, labels=3)
    params = init_params(module, jax.random.key(0))
    assert params["classifier"]["kernel"].shape == (3 * 16, 3)
    assert set(params["bert"]) == {"embeddings", "encoder"}
    ids = jnp.array([[[2, 10, 3, 0], [2, 6, 18, 3]], [[0] * 4, [0] * 4]])
    mask = jnp.array([[[1, 1, 1, 0], [1, 1, 1, 1]], [[0] * 4, [0] * 4]])
    output = jax.jit(module.apply)({"params": params}, ids, jnp.zeros_like(ids), mask)
    assert output.vectors.shape == (2, 2, 16)
    assert output.logits.shape == (2, 3)
    assert (output.vectors[1] == 0).all()
    short = jax.jit(module.apply)({"params": params}, ids[:1, :1, :3]).vectors[0, 0]
    np.testing.assert_allclose(output.vectors[0, 0], short, atol=1e-6)
