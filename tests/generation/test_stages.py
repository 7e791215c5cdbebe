"""The cache of a decoder grows while it generates."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.generation.decoder import DecoderFunctions
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.rows import rows_of_prompts
from bert_jax.generation.search import search

ROWS, VOCABULARY, LENGTH = 3, 7, 40


@functools.partial(jax.jit, static_argnums=(1, 2))
def generate(table, options, grows):
    """The next token depends on all earlier ones, which a cache [R, S] keeps."""

    def step(cache, tokens):
        seen, length = cache
        seen = seen.at[:, length].set(tokens)
        place = jnp.sum(seen * (1 + jnp.arange(seen.shape[1])), axis=1) % len(table)
        return table[place], (seen, length + 1)

    def reorder(cache, rows):
        return rows_of_prompts(cache[0], rows, ROWS), cache[1]

    def grow(cache, count):
        seen, length = cache
        return jnp.pad(seen, ((0, 0), (0, 1 + count - seen.shape[1]))), length

    logits = table[jnp.arange(ROWS)]
    cache = (jnp.zeros((ROWS, 1 if grows else 1 + LENGTH), jnp.int32), jnp.int32(1))
    functions = (step, reorder, grow) if grows else (step, reorder)
    prompts = jnp.zeros((ROWS, 1), jnp.int32)
    decoder = DecoderFunctions(*functions)
    return search(decoder, logits, cache, prompts, TokenRules((1,)), options)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("count", [5, 16, LENGTH])
def test_a_growing_cache_changes_nothing(beams, count):
    table = np.random.default_rng(1).standard_normal((101, VOCABULARY)).astype(np.float32)
    table[:, 1] -= 3  # the end is rare
    options = SearchOptions(count, num_beams=beams, length_penalty=2.0)
    found, expected = (generate(table, options, grows) for grows in (True, False))
    assert np.array_equal(found.token_ids, expected.token_ids)
    assert np.array_equal(found.scores, expected.scores)
    assert count < LENGTH or found.lengths.max() > 32
