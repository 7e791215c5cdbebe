"""Padding of the vocabulary changes no logit, no loss and no gradient."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import abstract_params, init_params
from bert_jax.models.execution import Execution
from bert_jax.models.heads.masked_lm import MaskedLMModel
from bert_jax.models.surgery import without_padding
from tests.random_params import random_params, small_config

VOCAB, ROWS = 50, 64
PADDED = Execution(pad_vocab_to_multiple_of=32)


CONFIG = small_config(num_hidden_layers=1)


TYING = [
    pytest.param(True, id="tied"),
    pytest.param(False, id="own decoder", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=TYING)
def config(request) -> EncoderConfig:
    return dataclasses.replace(CONFIG, tie_word_embeddings=request.param)


@pytest.fixture(scope="module")
def computed(config):
    """Logits, losses and gradients of the same parameters, plain and padded with zeros."""
    generator = np.random.default_rng(0)
    ids = generator.integers(0, VOCAB, (2, 8)).astype(np.int32)
    plain = random_params(MaskedLMModel(config), scale=0.02, all_differ=True)
    padded = abstract_params(MaskedLMModel(config, PADDED))
    padded = jax.tree.map(
        lambda leaf, rows: np.resize(np.append(leaf, np.zeros(rows.size)), rows.shape).astype("f"),
        plain,
        padded,
    )

    def compute(params, execution: Execution):
        module = MaskedLMModel(config, execution)

        def loss(params):
            logits = module.apply({"params": params}, ids)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, ids)
            return losses.mean(), logits

        (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
        return jax.tree.map(np.asarray, (logits, value, gradient))

    return compute(plain, Execution()), compute(padded, PADDED)


@pytest.mark.slow
def test_initial_values_of_words_do_not_depend_on_padding():
    config = dataclasses.replace(CONFIG, tie_word_embeddings=False)

    def new(execution):
        params = init_params(MaskedLMModel(config, execution), jax.random.key(0))
        # The layers do not depend on the padding, and are not computed without this line.
        del params["bert"]["encoder"]
        return params

    plain, padded = jax.jit(lambda: (new(Execution()), new(PADDED)))()
    for table in (
        padded["bert"]["embeddings"]["word_embeddings"]["embedding"],
        padded["mlm_head"]["decoder"],
    ):
        assert table.shape == (ROWS, 16)
        assert not np.asarray(table[VOCAB:]).any()
    jax.tree.map(np.testing.assert_array_equal, without_padding(padded, config), plain)


@pytest.mark.slow
def test_padding_has_no_probability(computed):
    (plain, plain_loss, _), (padded, padded_loss, _) = computed
    assert padded.shape == (2, 8, ROWS)
    np.testing.assert_allclose(padded[..., :VOCAB], plain, rtol=1e-6, atol=1e-7)
    assert float(padded_loss) == pytest.approx(float(plain_loss), rel=1e-6)
    assert not np.exp(padded - padded.max(axis=-1, keepdims=True))[..., VOCAB:].any()
    assert np.isfinite(padded).all()
    # Even where every word is less likely than any number that a model gives.
    assert (padded.argmax(-1) < VOCAB).all()
    assert padded[..., VOCAB:].max() < -1e38


@pytest.mark.slow
def test_padding_has_no_gradient(config, computed):
    (_, _, plain), (_, _, padded) = computed
    cut = without_padding(padded, config)
    for gradient, reference in zip(jax.tree.leaves(cut), jax.tree.leaves(plain), strict=True):
        # A small value is a sum of larger terms, so its error is relative to the largest.
        tolerance = max(1e-8, 1e-6 * abs(reference).max())
        np.testing.assert_allclose(gradient, reference, rtol=0, atol=tolerance)
    tables = [padded["bert"]["embeddings"]["word_embeddings"]["embedding"]]
    tables += [leaf for name, leaf in padded["mlm_head"].items() if name in ("bias", "decoder")]
    assert len(tables) == 2 + (not config.tie_word_embeddings)
    for table in tables:
        assert len(table) == ROWS
        assert not np.asarray(table[VOCAB:]).any()
