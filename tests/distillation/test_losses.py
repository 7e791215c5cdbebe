"""The losses against NumPy, written from the formulas of the papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax

from bert_jax.distillation import losses
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.models.layers import cosines

RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.normal(scale=2, size=shape)


def single(*arrays: np.ndarray) -> list:
    return [jnp.asarray(array, jnp.float32) for array in arrays]


def cosines_by_numpy(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (u * v).sum(-1) / np.linalg.norm(u, axis=-1) / np.linalg.norm(v, axis=-1)


def test_soft_losses():
    for temperature in (1.0, 2.0, 8.0):
        student, teacher = drawn(5, 4), drawn(5, 4)
        p, q = (softmax(each / temperature, axis=-1) for each in (teacher, student))
        yes, likely = expit(teacher / temperature), expit(student / temperature)
        of_labels = yes * np.log(yes / likely) + (1 - yes) * np.log((1 - yes) / (1 - likely))
        expected = {
            "classes": temperature**2 * (p * np.log(p / q)).sum(axis=-1),
            "labels": temperature**2 * of_labels.mean(axis=-1),
            "values": ((student - teacher) ** 2).mean(axis=-1),
        }
        for kind, values in expected.items():
            result = losses.soft_losses(kind, *single(student, teacher), temperature)
            np.testing.assert_allclose(result, values, rtol=2e-5, atol=1e-6, err_msg=kind)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        # The teacher's scores log 3 and 0 say 3^(1/T) to 1; the student says 1 to 1.
        (1.0, 0.75 * np.log(1.5) + 0.25 * np.log(0.5)),
        (0.5, 0.25 * (0.9 * np.log(1.8) + 0.1 * np.log(0.2))),
        (0.25, (81 / 82 * np.log(81 / 41) + 1 / 82 * np.log(1 / 41)) / 16),
        (1e-3, 1e-6 * np.log(2)),
        (1e-6, 1e-12 * np.log(2)),
        (100.0, np.log(3) ** 2 / 8),  # the limit of a high temperature
    ],
)
def test_what_cannot_be_chosen_counts_nothing(temperature, expected):
    """Masked scores, the lowest finite number, at each temperature: the loss and its gradient."""

    def loss(student):
        teacher = jnp.array([np.log(3.0), 0.0, MASK_VALUE], jnp.float32)
        return losses.soft_losses("classes", student, teacher, temperature)

    result, gradient = jax.value_and_grad(loss)(jnp.array([0.0, 0.0, MASK_VALUE]))
    # The two logarithms are near log 2 at T = 100: their difference has few digits.
    assert result == pytest.approx(expected, rel=2e-2 if temperature == 100 else 1e-5)
    # T · (softmax of the student - softmax of the teacher)
    odds = np.exp(np.float64(min(np.log(3) / temperature, 700)))
    first = temperature * (0.5 - odds / (1 + odds))
    np.testing.assert_allclose(gradient, [first, -first, 0], rtol=1e-4)


def test_vectors_of_another_width_are_compared_by_the_cosine_of_a_pair():
    student, teacher = drawn(3, 2, 4), drawn(3, 2, 6)
    own, expected = (cosines_by_numpy(each[:, 0], each[:, 1]) for each in (student, teacher))
    result = losses.soft_losses("vectors", *single(student, teacher), 1.0)
    np.testing.assert_allclose(result, (own - expected) ** 2, atol=1e-5)
    same = losses.soft_losses("vectors", *single(student, student + 1), 1.0)
    np.testing.assert_allclose(same, np.ones((3, 2)), rtol=1e-5)


def test_losses_of_layers():
    student, teacher = drawn(3, 2, 5, 4), drawn(3, 2, 5, 4)  # LBTD
    inputs = single(student, teacher)
    expected = ((student - teacher) ** 2).mean(axis=-1).mean(axis=0)
    np.testing.assert_allclose(losses.hidden_losses(*inputs), expected, rtol=1e-5)
    np.testing.assert_allclose(cosines(*inputs), cosines_by_numpy(student, teacher), atol=1e-5)


def test_attention_weights_of_padding_count_nothing():
    student, teacher = (softmax(drawn(2, 3, 2, 4, 4), axis=-1) for _ in range(2))  # LBNTS
    expected = (teacher * np.log(teacher / student)).sum(-1).mean(axis=(0, 2))  # BT
    padded = [np.pad(each, [(0, 0)] * 4 + [(0, 2)]) for each in (student, teacher)]
    result = losses.attention_losses(*single(*padded))
    np.testing.assert_allclose(result, expected, atol=1e-5)
