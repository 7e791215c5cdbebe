"""The counts of compiled programs for packed and for padded rows."""

import dataclasses

import pytest

from bert_jax.data.prediction_batches import packed_batches, padded_batches

LENGTHS = [16, 48] * 4
SIZES = {"batch_size": 4, "limit": 64, "row_multiple": 1}


@pytest.mark.slow
def test_the_counts_of_the_formula_and_of_the_compiler(script):
    pytest.importorskip("libtpu")
    module = script("packed_on_tpu")
    config = dataclasses.replace(module.config_of("tiny"), num_hidden_layers=1)
    topology = module.find_topology(module.parse_slice("v5e:1x1"))
    packed, padded = (
        module.count(list(batches(LENGTHS, **SIZES)), config, topology)
        for batches in (packed_batches, padded_batches)
    )
    # Four packed rows of a long and a short text; four rows of 48 tokens, four of 16.
    assert (packed.tokens, padded.tokens) == (4 * 64, 4 * 64)
    width, inner = 128, 512
    per_token = 8 * width**2 + 4 * width * inner
    assert packed.formula == 4 * 64 * (per_token + 4 * 64 * width)
    assert padded.formula == 4 * (64 * per_token + 4 * width * (48**2 + 16**2))
    # What the compiler counts besides is not a matmul.
    assert packed.formula < packed.compiled < 1.2 * packed.formula
