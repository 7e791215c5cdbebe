"""The parts of an encoder, by themselves."""

import pytest

from bert_jax.models.execution import Execution


@pytest.mark.parametrize("train", [False, True])
def test_the_matmuls_are_all_of_the_encoder(script, train):
    module = script("benchmark_parts")
    config = module.config_of("base")
    parts = module.parts_of(config, Execution(), 8, 128, train=train)
    flops = config.num_hidden_layers * sum(part.times * part.flops for part in parts)
    # The formula of planning/roofline.py, by hand: T·L·(8 D² + 4 D F + 4 T D) of each row.
    assert flops == 8 * 128 * 12 * (8 * 768**2 + 4 * 768 * 3072 + 4 * 128 * 768)
    assert ("dropout" in [part.name for part in parts]) == train


def test_the_size_of_minilm(script):
    config = script("benchmark_parts").config_of("minilm")
    assert (config.num_hidden_layers, config.hidden_size, config.head_dim) == (6, 384, 32)
    assert config.intermediate_size == 1536


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
def test_each_is_timed(script, train):
    module = script("benchmark_parts")
    text = module.table(module.config_of("tiny"), Execution("bfloat16"), 2, 16, 2, train=train)
    names = [line.split(" | ")[0].strip("| ") for line in text.splitlines()[2:]]
    assert names == [
        "matmul, query, key, value, output",
        "matmul, intermediate",
        "matmul, output of it",
        "attention",
        "GELU",
        "sum and LayerNorm",
        *(["dropout"] if train else []),
        "rest",
        "encoder",
    ]
