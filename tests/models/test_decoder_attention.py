"""Attention of a recurrent decoder: by hand, and as PyTorch computes its formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.decoder_attention import SCORES, DecoderAttention
from bert_jax.models.decoding import EncoderMemory
from bert_jax.models.execution import Execution
from bert_jax.models.packed_rows import EncoderInputs
from tests.random_params import small_config

WIDTH, LENGTHS, TARGET = 16, (5, 2, 3), 4


def memory_of(hidden, lengths):
    mask = np.arange(hidden.shape[1]) < np.array(lengths)[:, None]
    ids = np.zeros(mask.shape, np.int32)
    return EncoderMemory(hidden, EncoderInputs(ids, attention_mask=mask).tokens().mask)


def mask_of(states):
    return EncoderInputs(np.zeros(states.shape[:2], np.int32)).tokens().mask


def test_the_weights_and_the_output_by_hand():
    """Scores ln 3 and 0, and padding with the score 5: weights 3/4, 1/4 and 0."""
    module = DecoderAttention(small_config(hidden_size=2), Execution(), "dot")
    states = jnp.float32([[[1, 2]]])
    keys = jnp.float32([[[np.log(3), 0], [-2, 1], [5, 0]]])
    combination = np.float32([[1, 0], [0, 1], [0, 0], [0, 0.5]])  # of a, then s
    params = {"combination": {"kernel": combination}}
    output, weights = module.apply(
        {"params": params}, states, mask_of(states), memory_of(keys, [2])
    )
    np.testing.assert_allclose(weights, [[[0.75, 0.25, 0]]], atol=1e-6)
    attended = 0.75 * np.log(3) - 0.5, 0.25
    np.testing.assert_allclose(output, [[np.tanh([attended[0], attended[1] + 1])]], atol=1e-6)


def test_beams_share_the_memory_of_their_text():
    """Two beams of each of three texts are the same states with repeated memories."""
    random = np.random.default_rng(0)
    module = DecoderAttention(small_config(), Execution(), "general")
    states = random.normal(size=(6, 2, WIDTH)).astype(np.float32)
    keys = random.normal(size=(3, 5, WIDTH)).astype(np.float32)
    kernels = {"key": (WIDTH, WIDTH), "combination": (2 * WIDTH, WIDTH)}
    params = {
        name: {"kernel": random.normal(size=shape).astype(np.float32)}
        for name, shape in kernels.items()
    }

    def apply(memory):
        return module.apply({"params": params}, states, mask_of(states), memory)

    shared = apply(memory_of(keys, LENGTHS))
    repeated = apply(memory_of(keys.repeat(2, axis=0), np.repeat(LENGTHS, 2)))
    for one, other in zip(shared, repeated, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.slow
def test_values_and_gradients_are_those_of_pytorch(score):
    """On random weights and texts of different lengths: to 1e-5, gradients to 1e-4."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    config = small_config()
    module = DecoderAttention(config, Execution(), score)
    states = random.normal(size=(3, TARGET, WIDTH)).astype(np.float32)
    keys = random.normal(size=(3, max(LENGTHS), WIDTH)).astype(np.float32)
    shapes = jax.eval_shape(
        lambda: module.init(jax.random.key(0), states, mask_of(states), memory_of(keys, LENGTHS))
    )["params"]
    params = jax.tree.map(
        lambda leaf: random.normal(size=leaf.shape).astype(np.float32) * 0.3, shapes
    )
    factors = random.normal(size=states.shape).astype(np.float32)

    def loss(params, states, keys):
        output, weights = module.apply(
            {"params": params}, states, mask_of(states), memory_of(keys, LENGTHS)
        )
        return (output * factors).sum(), (output, weights)

    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))
    (_, (output, weights)), gradients = step(params, states, keys)

    leaves = jax.tree.map(lambda leaf: torch.tensor(leaf, requires_grad=True), params)
    kernel = {name: leaf["kernel"] for name, leaf in leaves.items()}
    s, h = (torch.tensor(each, requires_grad=True) for each in (states, keys))
    rows = []
    for row, length in enumerate(LENGTHS):  # one text and one token after the other, no padding
        for token in range(TARGET):
            query, text = s[row, token], h[row, :length]
            if score == "dot":
                scores = text @ query
            elif score == "general":
                scores = (text @ kernel["key"]) @ query
            else:
                both = torch.cat([query.expand(length, WIDTH), text], dim=1)
                weight = torch.cat([kernel["query"], kernel["key"]])
                scores = torch.tanh(both @ weight) @ kernel["score"][:, 0]
            alpha = torch.softmax(scores, dim=0)
            result = torch.tanh(torch.cat([alpha @ text, query]) @ kernel["combination"])
            rows.append((result, torch.nn.functional.pad(alpha, (0, max(LENGTHS) - length))))
    expected, expected_weights = (torch.stack(each) for each in zip(*rows, strict=True))
    expected = expected.reshape(s.shape)
    (expected * torch.tensor(factors)).sum().backward()
    np.testing.assert_allclose(output, expected.detach(), atol=1e-5)
    shape = (*states.shape[:2], max(LENGTHS))
    np.testing.assert_allclose(weights, expected_weights.detach().reshape(shape), atol=1e-5)
    wanted = (jax.tree.map(lambda leaf: leaf.grad, leaves), s.grad, h.grad)
    for found, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(found, other, atol=1e-4)
