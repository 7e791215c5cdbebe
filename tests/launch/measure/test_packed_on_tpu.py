"""The counts of compiled programs for packed and for padded rows."""

import dataclasses

import pytest

from bert_jax.data.prediction_batches import packed_batches, padded_batches
from bert_jax.planning.collectives import parse_program

# Of the table, 100 rows, two are read; S(1) is the on-chip memory.
PROGRAM = """
%fused (p: f32[2,4]) -> f32[2,4] {
  %p = f32[2,4]{1,0} parameter(0)
  ROOT %negate = f32[2,4]{1,0} negate(%p)
}

ENTRY %main (table: f32[100,4], rows: s32[2]) -> f32[2,4] {
  %table = f32[100,4]{1,0} parameter(0)
  %rows = s32[2]{0} parameter(1)
  %copy-start = (s32[2]{0:S(1)}, s32[2]{0}, u32[]{:S(2)}) copy-start(%rows)
  %copy-done = s32[2]{0:S(1)} copy-done(%copy-start)
  %gather = f32[2,4]{1,0:S(1)} gather(%table, %copy-done), slice_sizes={1,4}
  ROOT %fusion = f32[2,4]{1,0} fusion(%gather), kind=kLoop, calls=%fused
}
"""
LENGTHS = [16, 48] * 4
SIZES = {"batch_size": 4, "limit": 64, "row_multiple": 1}


def test_bytes_of_the_main_memory(script):
    module = script("packed_on_tpu")
    indices, read, written = 2 * 4, 2 * 4 * 4, 2 * 4 * 4
    assert module.moved_bytes(parse_program(PROGRAM)) == indices + read + written


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
    weights = 12 * width**2 + 13 * width  # with biases and the scales of LayerNorm
    embeddings = (512 + 2 + 2) * width  # positions, segments, and the scale and bias of LayerNorm
    a_program = 4 * (weights + embeddings)
    assert packed.least_bytes == 1 * a_program + 4 * 64 * 8 * width
    table = 4 * 30522 * width  # all of it is copied to the on-chip memory
    assert packed.least_bytes < packed.moved_bytes < table + 2 * packed.least_bytes
