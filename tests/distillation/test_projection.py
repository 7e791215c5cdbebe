"""The projection beside a student: initialisation, computation, weight decay, sharding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.encoder import abstract_params, init_params
from bert_jax.models.heads.hidden_projection import ProjectedStudent
from bert_jax.models.heads.masked_lm import MaskedLMModel
from bert_jax.models.parameter_sharding import parameter_axes
from bert_jax.sharding.rules import match
from bert_jax.training.optimizer import decay_mask, make_optimizer
from bert_jax.training_options import OptimizerOptions

IDS = jnp.array([[2, 5, 6, 3], [2, 7, 3, 0]])


@pytest.mark.slow
def test_the_student_does_not_change(tiny_config):
    student = MaskedLMModel(tiny_config)
    module = ProjectedStudent(tiny_config, student, 24)
    make = jax.jit(init_params, static_argnums=0)
    params, alone = make(module, jax.random.key(1)), make(student, jax.random.key(1))
    kernel = params.pop("hidden_projection")["kernel"]
    assert kernel.shape == (16, 24)
    assert 0.015 < np.std(kernel) < 0.02  # truncated at two deviations of 0.02
    jax.tree.map(np.testing.assert_array_equal, params, alone)

    hidden = np.random.default_rng(0).normal(size=(3, 2, 4, 16)).astype(np.float32)  # LBTD
    joined = {"params": {**params, "hidden_projection": {"kernel": kernel}}}
    result = module.apply(joined, hidden, method="project")
    np.testing.assert_allclose(result, hidden @ np.asarray(kernel), atol=1e-5)
    # The student ignores the matrix.
    np.testing.assert_array_equal(student.apply(joined, IDS), student.apply({"params": alone}, IDS))


def test_it_is_optimised_as_a_matrix_of_a_head(tiny_config):
    module = ProjectedStudent(tiny_config, MaskedLMModel(tiny_config), 24)
    more = dataclasses.replace(tiny_config, num_hidden_layers=5)
    layers = abstract_params(module.clone(config=more))["bert"]["encoder"]["layers"]
    assert layers["output"]["bias"].shape == (5, 16)
    params = abstract_params(module)
    assert decay_mask(params)["hidden_projection"]["kernel"] is True
    options = OptimizerOptions(learning_rate=1.0, head_learning_rate=3.0, freeze_encoder=True)
    assert make_optimizer(options, 1).factors(params)["hidden_projection"]["kernel"] == 3
    assert match(parameter_axes(), "hidden_projection/kernel") == ("embed", None)
