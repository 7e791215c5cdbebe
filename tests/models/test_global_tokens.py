"""Global tokens: which they are, and their attention against all pairs of tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.attention_inputs import MASK_VALUE, AttentionInputs
from bert_jax.models.global_tokens import (
    MOST_GATHERED,
    GlobalHeads,
    GlobalTokens,
    attend_with_global_tokens,
    global_tokens_of_task,
)
from bert_jax.models.kernels import xla
from bert_jax.models.packed_rows import Tokens

LENGTH, RADIUS, SEPARATOR = 140, 4, 2
PLACES = np.arange(LENGTH)


def masks():
    """Global tokens: the first; a few, in one row alone; more than are gathered."""
    few = np.isin(PLACES, (0, 7, 8, 60, 139)) & np.array([[True], [False]])
    first, many = few & (PLACES == 0), np.array([PLACES < 130] * 2)
    return {"first": (first, 1), "few": (few, None), "many": (many, None)}


@pytest.mark.parametrize("case", masks())
def test_it_is_the_attention_of_all_pairs(case):
    """A token sees those near it and the global ones, once each; a global token sees all."""
    assert MOST_GATHERED < 130 < LENGTH
    is_global, most = masks()[case]
    generator = np.random.default_rng(0)
    arrays = generator.normal(size=(6, 2, 1, LENGTH, 4)).astype(np.float32)  # BNTH
    # Two texts in the first row; padding at the end of the second, and one global token in it.
    ids = np.array([[1] * 90 + [2] * 50, [1] * 120 + [0] * 20], np.int32)
    is_global = is_global & (ids > 0)
    mask = Tokens.in_batch_order(ids, ids).mask.for_heads().within(RADIUS)
    tokens = GlobalTokens.from_mask(jnp.asarray(is_global), most)

    def computed(arrays):
        inputs = AttentionInputs(*arrays[:3], mask, 0.5)
        return attend_with_global_tokens(xla.attention, inputs, GlobalHeads(*arrays[3:]), tokens)

    def expected(arrays):
        sees = (ids[:, :, None] == ids[:, None])[:, None]
        near = abs(PLACES[:, None] - PLACES) <= RADIUS
        near = sees & (near | is_global[:, None, None])

        def attention(query, key, value, sees):
            scores = jnp.where(sees, query @ key.swapaxes(2, 3) * 0.5, MASK_VALUE)
            return jax.nn.softmax(scores) @ value

        far = attention(*arrays[3:], sees)
        return jnp.where(is_global[:, None, :, None], far, attention(*arrays[:3], near))

    real = (ids > 0)[:, None, :, None]
    weights = real * np.cos(np.arange(arrays[0].size)).reshape(arrays[0].shape)

    def weighted(function):
        return lambda arrays: (function(arrays) * weights).sum()

    values = [jax.jit(function)(arrays) * real for function in (computed, expected)]
    np.testing.assert_allclose(*values, atol=1e-5)
    gradients = [jax.jit(jax.grad(weighted(function)))(arrays) for function in (computed, expected)]
    np.testing.assert_allclose(*gradients, atol=1e-5)


def test_the_global_tokens_of_each_task():
    """As in transformers: [CLS]; the question with [CLS]; all behind the separators."""
    ids = np.array([[0, 5, 6, 2, 2, 7, 8, 2], [0, 5, 2, 2, 7, 2, 1, 1]])
    found = {}
    for kind in ("first", "question", "choice"):
        mask, most = global_tokens_of_task(kind, jnp.asarray(ids), SEPARATOR)
        found[kind] = np.asarray(mask, int).tolist(), most
    assert found == {
        "first": ([[1, 0, 0, 0, 0, 0, 0, 0]] * 2, 1),
        "question": ([[1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]], None),
        "choice": ([[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]], None),
    }


def test_places_of_global_tokens():
    is_global = jnp.asarray([[0, 1, 0, 1], [0, 0, 0, 0]], bool)
    tokens = GlobalTokens.from_mask(is_global, 2)
    assert (tokens.places.tolist(), tokens.has_all) == ([[1, 3], [4, 4]], True)
    assert GlobalTokens.from_mask(is_global).has_all  # all four fit
