"""FLOPs of a step: the formula against its published values, and the traced program against it."""

import jax
import jax.numpy as jnp
import pytest

from bert_jax.models.config import EncoderConfig
from bert_jax.planning.flops import flops_of_batch, program_flops, training_flops
from bert_jax.sharding.mesh import MeshShape


@pytest.mark.parametrize(
    ("size", "length", "predictions", "gigaflops"),
    [
        ("base", 128, 20, 69.9),
        ("base", 512, 80, 301.4),
        ("large", 128, 20, 240.6),
        ("large", 512, 80, 1020),
    ],
)
def test_gigaflops_of_a_sequence(size, length, predictions, gigaflops):
    found = training_flops(EncoderConfig.from_size(size), length=length, predictions=predictions)
    assert found / 1e9 == pytest.approx(gigaflops, rel=1e-3)


def test_by_hand():
    config = EncoderConfig(
        vocab_size=10,
        hidden_size=2,
        num_hidden_layers=3,
        num_attention_heads=1,
        intermediate_size=5,
    )
    # A token of a layer: 8·4 + 4·2·5 + 4·7·2 = 128. A prediction: 2 (4 + 20) = 48.
    assert training_flops(config, length=7, predictions=4) == 3 * (7 * 3 * 128 + 4 * 48)
    assert training_flops(config, length=7, predictions=0) == 3 * 7 * 3 * 128


def test_a_batch_is_all_its_sequences():
    config = EncoderConfig.from_size("tiny")
    rows = {"input_ids": jax.ShapeDtypeStruct((5, 4, 32), jnp.int32)}  # four choices each
    assert flops_of_batch(config, rows) == 20 * training_flops(config, length=32, predictions=0)
    rows["masked_lm_positions"] = jax.ShapeDtypeStruct((5, 4, 6), jnp.int32)
    assert flops_of_batch(config, rows) == 20 * training_flops(config, length=32, predictions=6)


def test_products_of_a_program_in_loops_and_calls():
    def step(x, kernels):  # [2, 3], [4, 3, 3]
        inner = jax.jit(lambda h, kernel: h @ kernel)
        return jax.lax.scan(lambda h, kernel: (inner(h, kernel), None), x, kernels)[0] @ x.T

    traced = jax.jit(step).trace(jnp.ones((2, 3)), jnp.ones((4, 3, 3)))
    assert program_flops(traced.jaxpr.jaxpr) == 4 * 2 * 2 * 3 * 3 + 2 * 2 * 3 * 2


def test_the_program_of_a_step_computes_what_the_formula_says(lay_out):
    training = lay_out("h100:1", MeshShape(), data__length=24, model__vocab_size=960)
    # Pooler and sentence head are on top of the formula; they weigh more in a tiny model.
    width = 32
    extra = 3 * 8 * 2 * (width * width + 2 * width)
    assert training.program_flops == pytest.approx(training.model_flops + extra, rel=1e-2)


def test_of_several_ways_one_counts():
    def step(x):  # [2, 3]
        return jax.lax.platform_dependent(x, cpu=lambda x: x @ x.T, default=lambda x: (2 * x) @ x.T)

    traced = jax.jit(step).trace(jnp.ones((2, 3)))
    assert program_flops(traced.jaxpr.jaxpr) == 2 * 2 * 3 * 2


def test_what_is_computed_again_is_seen(lay_out):
    plain, full = (
        lay_out("h100:1", MeshShape(), model__remat=remat).program_flops
        for remat in ("none", "full")
    )
    # All of the layers' forward pass once more: up to a third.
    assert 1.2 < full / plain < 1.34
