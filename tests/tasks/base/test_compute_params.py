"""Parameters that are converted once, not for each batch."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.execution import Execution
from bert_jax.tasks.base.predictor import model_outputs

BATCH = {
    "input_ids": np.array([[2, 6, 10, 3]], np.int32),
    "token_type_ids": np.zeros((1, 4), np.int32),
    "attention_mask": np.ones((1, 4), np.int32),
}


@pytest.fixture
def model(make_model):
    made = make_model("classification")
    module = made.description.make_module(Execution(dtype="bfloat16"))
    params = jax.tree.map(lambda leaf: leaf, made.params)  # a tree of its own
    return dataclasses.replace(made, module=module, params=params)


def test_results_are_the_same_to_the_bit(model):
    found, expected = (
        model_outputs(params, BATCH, module=model.module)
        for params in (model.compute_params, model.params)
    )
    np.testing.assert_array_equal(found, expected)


def test_only_kernels_of_layers_are_converted_and_once(model):
    converted = model.compute_params
    dtypes = {
        "/".join(entry.key for entry in path): leaf.dtype
        for path, leaf in jax.tree_util.tree_leaves_with_path(converted)
    }
    assert dtypes["bert/encoder/layers/attention/query/kernel"] == jnp.bfloat16
    assert dtypes["bert/encoder/layers/attention/query/bias"] == jnp.float32
    assert dtypes["bert/pooler/dense/kernel"] == jnp.float32
    assert model.compute_params is converted
    assert model.params["bert"]["encoder"]["layers"]["output"]["kernel"].dtype == jnp.float32


def test_parameters_that_are_replaced_are_converted_again(model):
    assert model.compute_params is model.compute_params
    layers = model.params["bert"]["encoder"]["layers"]
    layers["output"]["kernel"] = 2 * layers["output"]["kernel"]
    kernel = model.compute_params["bert"]["encoder"]["layers"]["output"]["kernel"]
    np.testing.assert_array_equal(kernel, layers["output"]["kernel"].astype(jnp.bfloat16))


def test_in_float32_nothing_is_copied(make_model):
    model = make_model("classification")
    assert model.compute_params is model.params
