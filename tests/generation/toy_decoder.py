"""A decoder without a model: logits from a table, by row, position and the last two tokens."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.generation.decoder import DecoderFunctions
from bert_jax.generation.rows import rows_of_prompts
from bert_jax.generation.search import search

START = 0


def random_table(seed, rows, vocabulary, scale=2.0, length=8):
    """Logits [rows, M, V, V, V] of new token m, after the token before the last, and the last."""
    shape = (rows, length, vocabulary, vocabulary, vocabulary)
    return scale * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def decoder_of(table):
    """The decoder and, for each row, its cache after the prompt of one token."""

    def step(cache, tokens):
        rows, counts, previous = cache
        return table[rows, counts, previous, tokens], (rows, counts + 1, tokens)

    def reorder(cache, rows):
        return jax.tree.map(lambda array: rows_of_prompts(array, rows, len(table)), cache)

    rows = jnp.arange(len(table))
    cache = (rows, jnp.full(len(table), 1), jnp.full(len(table), START))
    return DecoderFunctions(step, reorder), table[:, 0, START, START], cache


@functools.partial(jax.jit, static_argnums=(1, 2))
def generate(table, rules, options, keys=None, prompt_ids=None):
    """What a search finds; the decoder has seen START twice, whatever the prompt."""
    decoder, logits, cache = decoder_of(table)
    if prompt_ids is None:
        prompt_ids = jnp.full((len(table), 1), START)
    return search(decoder, logits, cache, prompt_ids, rules, options, keys)


def log_probs_after(table, tokens):
    """Log-probabilities [V] of a row's next token in float64, by loops."""
    previous, last = [START, START, *tokens][-2:]
    logits = table[len(tokens), previous, last].astype(np.float64)
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def results(generated):
    """For each row, (tokens, score) of what was found, the best first."""
    return [
        [
            (ids[:length].tolist(), float(score))
            for ids, length, score in zip(*row, strict=True)
            if length
        ]
        for row in zip(*map(np.asarray, generated), strict=True)
    ]
