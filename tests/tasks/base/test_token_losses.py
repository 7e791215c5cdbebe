"""The loss of decoders against a formula in NumPy, and against optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.tasks.base.token_losses import smoothed_cross_entropy, token_sums

LOGITS = np.array([[2.0, 1.0, 0.0, -1.0], [0.5, 0.5, 3.0, 0.5]], np.float32)
LABELS = np.array([0, 1])


def formula(logits, labels, smoothing):
    """-Σ q log p + Σ q log q, with the array of smoothed labels."""
    size = logits.shape[-1]
    smoothed = np.full(logits.shape, smoothing / (size - 1))
    np.put_along_axis(smoothed, labels[..., None], 1 - smoothing, axis=-1)
    exponents = np.exp(logits.astype(np.float64))
    log_p = np.log(exponents / exponents.sum(axis=-1, keepdims=True))
    return (smoothed * (np.log(smoothed) - log_p)).sum(axis=-1)


def test_the_loss_by_hand():
    """With V = 4 and ε = 0.3: 0.7 for the token, 0.1 for each other."""
    losses = smoothed_cross_entropy(LOGITS, LABELS, 0.3, 4)
    np.testing.assert_allclose(losses, formula(LOGITS, LABELS, 0.3), rtol=1e-5)
    np.testing.assert_allclose(losses, [0.09974, 1.52970], atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_the_loss_of_a_vocabulary(smoothing):
    random = np.random.default_rng(0)
    logits = random.normal(0, 5, (2, 3, 1000)).astype(np.float32)
    labels = random.integers(0, 1000, (2, 3))
    losses = jax.jit(smoothed_cross_entropy, static_argnums=(2, 3))(logits, labels, smoothing, 1000)
    np.testing.assert_allclose(losses, formula(logits, labels, smoothing), rtol=1e-5)


def test_the_smoothed_label_itself_has_no_loss():
    smoothed = jnp.array([0.7, 0.1, 0.1, 0.1])
    loss = smoothed_cross_entropy(jnp.log(smoothed), jnp.array(0), 0.3, 4)
    assert abs(loss) < 1e-6
    gradient = jax.grad(smoothed_cross_entropy)(jnp.log(smoothed), jnp.array(0), 0.3, 4)
    np.testing.assert_allclose(gradient, np.zeros(4), atol=1e-6)


def test_columns_of_padding_have_no_share_of_the_labels():
    padded = np.pad(LOGITS, ((0, 0), (0, 2)), constant_values=MASK_VALUE)
    losses = smoothed_cross_entropy(padded, LABELS, 0.3, 4)
    np.testing.assert_allclose(losses, smoothed_cross_entropy(LOGITS, LABELS, 0.3, 4), rtol=1e-6)
    gradient = jax.grad(lambda logits: smoothed_cross_entropy(logits, LABELS, 0.3, 4).sum())(padded)
    assert np.isfinite(gradient).all()
    assert (gradient[:, 4:] == 0).all()


def test_without_smoothing_it_is_the_cross_entropy():
    expected = optax.softmax_cross_entropy_with_integer_labels(LOGITS, LABELS)
    np.testing.assert_allclose(smoothed_cross_entropy(LOGITS, LABELS, 0.0, 4), expected, rtol=1e-6)


def test_sums_over_tokens():
    sums = token_sums(LOGITS, LABELS, np.array([2.0, 1.0], np.float32), smoothing=0.3, vocab_size=4)
    smoothed, plain = formula(LOGITS, LABELS, 0.3), formula(LOGITS, LABELS, 1e-12)
    np.testing.assert_allclose(sums["loss"], 2 * smoothed[0] + smoothed[1], rtol=1e-6)
    np.testing.assert_allclose(sums["cross_entropy"], 2 * plain[0] + plain[1], rtol=1e-6)
    assert sums["accuracy"] == 2
    padding = token_sums(
        LOGITS, LABELS, np.array([1.0, 0.0], np.float32), smoothing=0.3, vocab_size=4
    )
    assert padding["accuracy"] == 1
