"""The span-boundary head against its published formulas, computed word by word in NumPy."""

import math

import jax
import numpy as np
import pytest

from bert_jax.models.encoder import Encoder, abstract_params
from bert_jax.models.heads.span_boundary import SpanBoundaryModel
from tests.random_params import random_params


def layer(params, vector: np.ndarray) -> np.ndarray:
    """LayerNorm(gelu(W x + b))."""
    vector = vector @ params["dense"]["kernel"] + params["dense"]["bias"]
    vector = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in vector])
    vector = (vector - vector.mean()) / math.sqrt(vector.var() + 1e-12)
    return vector * params["layer_norm"]["scale"] + params["layer_norm"]["bias"]


@pytest.mark.slow
def test_logits_follow_the_published_formulas(tiny_config):
    model = SpanBoundaryModel(tiny_config, max_targets=3)
    chance = np.random.default_rng(0)
    params = random_params(model, scale=0.3, all_differ=True)
    ids = chance.integers(5, 40, (2, 9))
    # Tokens 2 to 4 and token 6 of the first row, token 5 of the second; the rest is filling.
    masked = np.array([[2, 3, 4, 6], [5, 0, 0, 0]])
    left = np.array([[1, 1, 1, 5], [4, 0, 0, 0]])
    right = np.array([[5, 5, 5, 7], [6, 0, 0, 0]])
    output = jax.jit(model.apply)(
        {"params": params},
        ids,
        masked_lm_positions=masked,
        span_left_positions=left,
        span_right_positions=right,
    )
    encoder = Encoder(tiny_config, add_pooling_layer=False)
    hidden = np.asarray(jax.jit(encoder.apply)({"params": params["bert"]}, ids).last_hidden_state)
    head = jax.tree.map(np.float64, params["span_boundary_head"])
    words = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    for row, column, position in ((0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 0), (1, 0, 0)):
        boundaries = hidden[row, left[row, column]], hidden[row, right[row, column]]
        vector = np.concatenate([*boundaries, head["place_embeddings"]["embedding"][position]])
        vector = layer(head["second"], layer(head["first"], vector))
        expected = vector @ words.T + head["bias"]
        np.testing.assert_allclose(output.span_logits[row, column], expected, atol=1e-4)
    assert output.prediction_logits.shape == output.span_logits.shape == (2, 4, 40)


def test_the_published_width_of_positions_in_a_span(tiny_config):
    shapes = abstract_params(SpanBoundaryModel(tiny_config))["span_boundary_head"]
    assert shapes["place_embeddings"]["embedding"].shape == (20, 200)
    assert shapes["first"]["dense"]["kernel"].shape == (16 + 16 + 200, 16)
    assert shapes["second"]["dense"]["kernel"].shape == (16, 16)
