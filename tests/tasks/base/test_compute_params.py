"""Work that is done once for many batches: converted parameters, compiled losses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.execution import Execution
from bert_jax.tasks.base.labelled_evaluator import example_losses
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
    params = jax.tree.map(lambda leaf: leaf, made.params)  # another tree
    return dataclasses.replace(made, module=module, params=params)


@pytest.mark.slow
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
    kernel = model.params["bert"]["encoder"]["layers"]["output"]["kernel"]
    assert kernel.dtype == jnp.float32
    outputs, expected = (
        model_outputs(params, BATCH, module=model.module) for params in (converted, model.params)
    )
    np.testing.assert_array_equal(outputs, expected)
    # Parameters that are replaced are converted again.
    model.params["bert"]["encoder"]["layers"]["output"]["kernel"] = 2 * kernel
    again = model.compute_params["bert"]["encoder"]["layers"]["output"]["kernel"]
    np.testing.assert_array_equal(again, (2 * kernel).astype(jnp.bfloat16))


def test_in_float32_nothing_is_copied(make_model):
    model = make_model("classification")
    assert model.compute_params is model.params


class Squares:
    def __init__(self):
        self.traces = 0

    def losses(self, scores, targets):
        self.traces += 1
        return (scores - targets) ** 2


def test_the_losses_of_a_second_evaluation_are_not_compiled_again():
    squares, others = Squares(), Squares()
    for _ in range(2):
        losses = example_losses(squares.losses, np.float32([3, 1]), np.float32([1, 1]))
        assert losses.tolist() == [4, 0]
    example_losses(others.losses, np.float32([3, 1]), np.float32([1, 1]))
    assert (squares.traces, others.traces) == (1, 1)
