"""The matrix products of a forward pass, by themselves."""

import pytest


def test_they_are_all_of_the_encoder(script):
    layers, matmuls = script("benchmark_matmuls").matmuls_of("base", 8, 128)
    flops = layers * sum(matmul.times * matmul.flops for matmul in matmuls)
    # The formula of planning/roofline.py, by hand: T·L·(8 D² + 4 D F + 4 T D) of each row.
    assert flops == 8 * 128 * 12 * (8 * 768**2 + 4 * 768 * 3072 + 4 * 128 * 768)


@pytest.mark.slow
def test_each_is_timed(script):
    module = script("benchmark_matmuls")
    _, matmuls = module.matmuls_of("tiny", 2, 16)
    taken = module.seconds(matmuls, "bfloat16", rounds=2)
    assert len(taken) == len(matmuls) == 5
    assert all(0 < each < 1 for each in taken)
