"""Greedy search and samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.generation.beam_search import beam_search
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from bert_jax.generation.sampling import keep_top_k, keep_top_p
from tests.generation.toy_decoder import (
    START,
    decoder_of,
    generate,
    log_probs_after,
    random_table,
    results,
)

LENGTH = 6
RULES = TokenRules((1,), pad_token_id=5)


def keys(rows, seed=0):
    return jax.random.split(jax.random.key(seed), rows)


def test_greedy_search_takes_the_best_token():
    table = random_table(0, 20, vocabulary=6)
    generated = generate(table, RULES, SearchOptions(LENGTH, length_penalty=0.5))
    for row, [(tokens, score)] in enumerate(results(generated)):
        total = 0.0
        for count, token in enumerate(tokens):
            log_probs = log_probs_after(table[row], tokens[:count])
            assert token == log_probs.argmax()
            total += log_probs[token]
        assert 1 not in tokens[:-1]
        assert tokens[-1] == 1 or len(tokens) == LENGTH
        np.testing.assert_allclose(score, total / len(tokens) ** 0.5, rtol=1e-5)
        assert set(generated.token_ids[row, 0, len(tokens) :].tolist()) <= {5}


def test_one_beam_that_stops_at_the_first_end_is_greedy():
    table = random_table(1, 20, vocabulary=6)
    options = SearchOptions(LENGTH, early_stopping=True)

    @jax.jit
    def one_beam(table):
        return beam_search(*decoder_of(table), jnp.full((20, 1), START), RULES, options)

    greedy, beam = generate(table, RULES, options), one_beam(table)
    assert greedy.token_ids.tolist() == beam.token_ids.tolist()
    assert greedy.lengths.tolist() == beam.lengths.tolist()
    np.testing.assert_allclose(greedy.scores, beam.scores, rtol=1e-5)


@pytest.mark.slow
def test_samples_are_a_function_of_their_key():
    table = random_table(2, 6, vocabulary=8)
    options = SearchOptions(LENGTH, temperature=1.3, num_return_sequences=3)
    together = generate(table, RULES, options, keys(6))
    again = generate(table, RULES, options, keys(6))
    other = generate(table, RULES, options, keys(6, seed=1))
    assert results(together) == results(again) != results(other)
    alone = generate(table[4:5], RULES, options, keys(6)[4:5])
    assert results(alone)[0] == results(together)[4]
    raw = generate(table, RULES, options, jax.random.key_data(keys(6)))
    assert results(raw) == results(together)


def test_scores_of_samples():
    """Log-probabilities of the model, whatever the temperature; the best sample is the first."""
    table = random_table(3, 6, vocabulary=8)
    options = SearchOptions(LENGTH, temperature=2.0, num_return_sequences=4)
    for row, found in enumerate(results(generate(table, RULES, options, keys(6)))):
        scores = [score for _, score in found]
        assert scores == sorted(scores, reverse=True)
        for tokens, score in found:
            gained = [log_probs_after(table[row], tokens[:i])[t] for i, t in enumerate(tokens)]
            np.testing.assert_allclose(score, sum(gained) / len(tokens), rtol=1e-5)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, [0.4, 0.1, 0.2, 0.3]),
        ({"temperature": 0.5}, [16 / 30, 1 / 30, 4 / 30, 9 / 30]),
        ({"top_k": 2}, [4 / 7, 0, 0, 3 / 7]),
        ({"top_p": 0.8}, [4 / 9, 0, 2 / 9, 3 / 9]),
        ({"top_k": 3, "top_p": 0.7}, [4 / 7, 0, 0, 3 / 7]),
    ],
)
def test_the_distribution_of_samples(chosen, expected):
    table = jnp.broadcast_to(jnp.log(jnp.array([0.4, 0.1, 0.2, 0.3])), (1, 1, 4, 4, 4))
    options = SearchOptions(1, num_return_sequences=4000, **{"temperature": 1.0} | chosen)
    tokens = generate(table, TokenRules(), options, keys(1)).token_ids
    frequencies = np.bincount(np.asarray(tokens).reshape(-1), minlength=4) / 4000
    np.testing.assert_allclose(frequencies, expected, atol=0.03)
    assert [frequency > 0 for frequency in frequencies] == [value > 0 for value in expected]


@pytest.mark.slow
def test_top_k_and_top_p_by_hand():
    inf = np.inf
    scores = jnp.log(jnp.array([[0.1, 0.4, 0.3, 0.2], [0.25, 0.25, 0.25, 0.25]]))
    assert keep_top_k(scores, 0) is scores
    np.testing.assert_array_equal(
        keep_top_k(scores, 2), [[-inf, scores[0, 1], scores[0, 2], -inf], scores[1].tolist()]
    )
    np.testing.assert_array_equal(keep_top_k(scores, 9), scores)
    assert keep_top_p(scores, 1.0) is scores
    finite = jnp.isfinite(keep_top_p(scores, 0.65))
    assert finite.tolist() == [[False, True, True, False], [True] * 4]
    assert jnp.isfinite(keep_top_p(scores[:1], 1e-9)).tolist() == [[False, True, False, False]]


def test_samples_need_keys():
    with pytest.raises(ValueError, match="keys"):
        generate(random_table(0, 1, 6), RULES, SearchOptions(LENGTH, temperature=1.0))
