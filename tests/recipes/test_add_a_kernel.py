"""The recipe "add an attention kernel": a function and its entry in the table."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.families import bert
from bert_jax.models import execution, kernels
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution, resolve_execution
from bert_jax.models.kernels.definition import attention
from tests.models.test_kernel_choice import kernel_of
from tests.models.test_kernels import inputs_of, tokens_of
from tests.random_params import random_params
from tests.recipes import toy_kernel

# The second row ends in padding, which sees no key and which no token sees.
TOKENS = tokens_of([[1, 1, 2, 2, 2], [1, 1, 1, 1, 3]], [[1, 1, 2, 2, 2], [1, 1, 1, 1, 0]])


@pytest.fixture(autouse=True)
def in_the_table(monkeypatch):
    monkeypatch.setattr(kernels, "KERNELS", (toy_kernel.KERNEL, *kernels.KERNELS))
    monkeypatch.setattr(execution, "SETTINGS", (*kernels.SETTINGS, "toy"))


def test_the_table_selects_it():
    chosen = functools.partial(kernel_of, length=5, dtype="float32")
    assert chosen("toy", "cpu") == "toy"
    assert chosen("toy", "cpu", length=3) == "blocked"
    assert chosen("toy", "cpu", rate=0.1) == "blocked"
    assert chosen("toy", "gpu") == "xla"
    assert chosen("xla", "cpu") == "blocked"
    automatic = [resolve_execution("float32", platform=name).attention for name in ("cpu", "gpu")]
    assert automatic == ["toy", "xla"]


def test_it_computes_the_definition():
    qkv = np.random.default_rng(0).normal(size=(3, 2, 3, 5, 8)).astype(np.float32)
    inputs = inputs_of(*qkv, TOKENS)
    computed, expected = jax.jit(lambda i: (toy_kernel.attention(i), attention(i)))(inputs)
    np.testing.assert_allclose(computed, expected, atol=1e-6)


@pytest.mark.slow
def test_a_model_computes_with_it():
    config = bert.FAMILY.new_config("tiny", num_hidden_layers=1, vocab_size=40)
    params = random_params(Encoder(config), scale=0.02)
    ids = np.arange(10).reshape(2, 5)
    toy, xla = (
        jax.jit(Encoder(config, Execution(attention=name)).apply)({"params": params}, ids)
        for name in ("toy", "xla")
    )
    np.testing.assert_allclose(toy.last_hidden_state, xla.last_hidden_state, atol=1e-5)
