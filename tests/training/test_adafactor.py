"""Adafactor against optax on the single matrices, and what the stacked layers make of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import PartitionSpec

from bert_jax.errors import OptionError
from bert_jax.models.parameter_sharding import state_shardings
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.training.adafactor import adafactor_direction
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training_options import OptimizerOptions

QUERY = "bert/encoder/layers/attention/query/kernel"
OUTPUT = "bert/encoder/layers/attention/output/kernel"
WORDS = "bert/embeddings/word_embeddings/embedding"
NORM = "bert/encoder/layers/output_norm/scale"
SMALL = "bert/pooler/dense/kernel"

# Each parameter, with the shape of its matrices: heads are the outputs of one, the inputs of one.
SHAPES = {
    QUERY: ((2, 130, 2, 64), (130, 128)),
    OUTPUT: ((2, 2, 64, 130), (128, 130)),
    WORDS: ((140, 130), (140, 130)),
    NORM: ((2, 130), (130,)),
    SMALL: ((130, 3), (130, 3)),
}


@pytest.fixture(scope="module")
def problem():
    """Parameters, and gradients of three steps; one layer has far larger numbers than the other."""
    generator = np.random.default_rng(0)
    sizes = {name: shape for name, (shape, _) in SHAPES.items()}
    draws = [
        {name: generator.normal(size=shape).astype(np.float32) for name, shape in sizes.items()}
        for _ in range(4)
    ]
    for draw in draws:
        draw[QUERY][1] *= 30
        draw[NORM][0] *= 1e-4  # a size below the least
    return draws[0], draws[1:]


@pytest.mark.slow
def test_every_layer_is_one_matrix_of_optax(problem):
    params, gradients = problem
    ours = adafactor_direction()
    tree = unflatten_dict(params, sep="/")
    state, update = ours.init(tree), jax.jit(ours.update)
    actual = []
    for gradient in gradients:
        direction, state = update(unflatten_dict(gradient, sep="/"), state, tree)
        actual.append(flatten_dict(direction, sep="/"))

    def matrices(arrays):
        return {name: list(array.reshape(-1, *SHAPES[name][1])) for name, array in arrays.items()}

    theirs = optax.chain(
        optax.scale_by_factored_rms(),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(1e-3),
    )
    split = matrices(params)
    state, update = theirs.init(split), jax.jit(theirs.update)
    for step, gradient in enumerate(gradients):
        expected, state = update(matrices(gradient), state, split)
        for name, arrays in matrices(actual[step]).items():
            for ours_, theirs_ in zip(arrays, expected[name], strict=True):
                np.testing.assert_allclose(ours_, theirs_, rtol=2e-5, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_a_gradient_of_rank_one_moves_every_weight_by_the_size_of_its_matrix():
    """G = a bᵀ has r · c / mean(r) = G², so the first update is its sign."""
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=(200, 1)), generator.normal(size=(1, 150))
    tree = unflatten_dict({WORDS: jnp.full((200, 150), -0.5)}, sep="/")
    gradient = unflatten_dict({WORDS: jnp.float32(a * b)}, sep="/")
    direction, _ = adafactor_direction().update(gradient, adafactor_direction().init(tree), tree)
    np.testing.assert_allclose(
        flatten_dict(direction, sep="/")[WORDS], 0.5 * np.sign(a * b), rtol=1e-5
    )


@pytest.mark.slow
def test_decay_rates_of_layers_and_frozen_layers_apply_to_its_updates(problem):
    params, (gradient, *_) = (unflatten_dict(problem[0], sep="/"), problem[1])
    gradient = unflatten_dict(gradient, sep="/")
    plain = adafactor_direction()
    updates, _ = plain.update(gradient, plain.init(params), params)
    options = OptimizerOptions(
        name="adafactor", weight_decay=0.25, max_grad_norm=0.0, layer_decay=0.5, freeze_layers=1
    )
    optimizer = make_optimizer(options, 10)
    new, _ = jax.jit(optimizer.update)(gradient, optimizer.init(params), params, jnp.float32(0.1))
    before, after, update = (flatten_dict(tree, sep="/") for tree in (params, new, updates))
    for name in (WORDS, NORM, QUERY):
        np.testing.assert_array_equal(
            after[name] if name == WORDS else after[name][0],
            before[name] if name == WORDS else before[name][0],
        )
    top = before[QUERY][1] - 0.1 * 0.5 * (update[QUERY][1] + 0.25 * before[QUERY][1])
    np.testing.assert_allclose(after[QUERY][1], top, rtol=1e-5)
    norm = before[NORM][1] - 0.1 * 0.5 * update[NORM][1]
    np.testing.assert_allclose(after[NORM][1], norm, rtol=1e-5)


def test_shapes_and_shardings_of_the_moments(problem):
    params = unflatten_dict(problem[0], sep="/")
    moments = make_optimizer(OptimizerOptions(name="adafactor"), 10).init(params)
    named = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(moments)[0]
    }
    shapes = {name.split("/", 1)[1]: leaf.shape for name, leaf in named.items()}
    assert shapes == {
        "steps": (),
        f"rows/{QUERY}": (2, 130, 1, 1),
        f"rows/{OUTPUT}": (2, 2, 64, 1),
        f"rows/{WORDS}": (140, 1),
        f"rows/{NORM}": (2, 130),
        f"rows/{SMALL}": (130, 3),
        f"columns/{QUERY}": (2, 1, 2, 64),
        f"columns/{OUTPUT}": (2, 1, 1, 130),
        f"columns/{WORDS}": (1, 130),
        f"columns/{NORM}": (),
        f"columns/{SMALL}": (),
    }
    shardings = state_shardings(one_device_mesh(), moments, has_means=True)
    specs = {
        name.split("/", 1)[1]: sharding.spec
        for name, sharding in zip(named, jax.tree.leaves(shardings), strict=True)
    }
    assert specs[f"rows/{QUERY}"] == PartitionSpec(None, "fsdp", None, None)
    assert specs[f"columns/{QUERY}"] == PartitionSpec(None, None, "tensor", None)
    assert specs[f"rows/{WORDS}"] == PartitionSpec("tensor", None)
    assert specs[f"columns/{WORDS}"] == PartitionSpec(None, "fsdp")
    assert specs[f"rows/{SMALL}"] == PartitionSpec("fsdp", None)


@pytest.mark.parametrize("key", ["beta1", "beta2", "epsilon", "bias_correction"])
def test_options_of_adam_are_refused(key):
    with pytest.raises(OptionError) as raised:
        OptimizerOptions(name="adafactor", **{key: True if key == "bias_correction" else 0.5})
    assert "optimizer.name=adafactor has no such option: leave it out" in str(raised.value)
    assert f"optimizer.{key} is " in str(raised.value)
