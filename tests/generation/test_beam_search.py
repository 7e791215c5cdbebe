"""Beam search against loops in Python, exhaustive search and literal values."""

import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.generation.decoder import NO_TOKEN
from bert_jax.generation.next_token import TokenRules
from bert_jax.generation.options import SearchOptions
from tests.generation.reference_beams import (
    all_sequences,
    beams_of_transformers,
    beams_of_wmt,
)
from tests.generation.toy_decoder import generate, log_probs_after, random_table, results

ROWS, LENGTH = 40, 7


def assert_same(found, expected):
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose(
        [score for _, score in found], [score for _, score in expected], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("early_stopping", "beams", "alpha", "eos"),
    [
        (False, 3, 1.0, (1,)),
        (True, 3, 1.0, (1,)),
        ("never", 3, 2.0, (1, 4)),
        ("never", 2, -0.7, (1,)),
        (False, 3, 2.0, (1, 4)),
        (False, 4, 0.0, ()),
    ],
)
def test_the_rule_of_transformers(early_stopping, beams, alpha, eos):
    table = random_table(beams, ROWS, vocabulary=6)
    options = SearchOptions(
        max_new_tokens=LENGTH,
        num_beams=beams,
        length_penalty=alpha,
        num_return_sequences=beams,
        early_stopping=early_stopping,
    )
    found = results(generate(table, TokenRules(eos, pad_token_id=5), options))
    for row in range(ROWS):
        expected = beams_of_transformers(
            functools.partial(log_probs_after, table[row]),
            eos=eos,
            vocabulary=6,
            beams=beams,
            length=LENGTH,
            alpha=alpha,
            early_stopping=early_stopping,
        )
        assert_same(found[row], expected)


@pytest.mark.parametrize(("beams", "alpha"), [(3, 0.6), (2, 0.0), (4, 1.5)])
def test_the_rule_of_wmt(beams, alpha):
    table = random_table(beams, ROWS, vocabulary=10)
    table[: ROWS // 2, ..., 1] -= 20.0  # in many rows no sequence ends
    options = SearchOptions(
        max_new_tokens=LENGTH,
        num_beams=beams,
        length_penalty=alpha,
        num_return_sequences=beams,
        penalty="wmt",
    )
    found = results(generate(table, TokenRules((1,)), options))
    ended = [any(tokens[-1] == 1 for tokens, _ in row) for row in found]
    assert any(ended)
    assert not all(ended)
    for row in range(ROWS):
        expected = beams_of_wmt(
            functools.partial(log_probs_after, table[row]),
            eos=(1,),
            vocabulary=10,
            beams=beams,
            length=LENGTH,
            alpha=alpha,
        )
        assert_same(found[row], expected)


@pytest.mark.parametrize("penalty", ["transformers", "wmt"])
def test_enough_beams_find_the_optimum(penalty):
    """K = 3³ live sequences are all there are before the last token."""
    table = random_table(0, 10, vocabulary=4)
    options = SearchOptions(
        max_new_tokens=4,
        num_beams=27,
        length_penalty=0.8,
        num_return_sequences=5,
        early_stopping="never" if penalty == "transformers" else False,
        penalty=penalty,
    )
    # What does not end has, in the rule of wmt, no part in the result.
    table[..., 1] += 2.0
    found = results(generate(table, TokenRules((1,)), options))

    def score(log_prob, count):
        return log_prob / (count if penalty == "transformers" else (5 + count) / 6) ** 0.8

    for row in range(10):
        every = all_sequences(
            functools.partial(log_probs_after, table[row]),
            eos=(1,),
            vocabulary=4,
            length=4,
            score=score,
        )
        if penalty == "wmt":
            every = [(tokens, value) for tokens, value in every if tokens[-1] == 1]
        assert_same(found[row], every[:5])


# After the start, token 2 is best; but 3, then the end (1), is the better sequence.
LECTURE = np.full((1, 2, 4, 4, 4), -99.0, np.float32)
LECTURE[0, 0, 0, 0, [2, 3]] = np.log([0.6, 0.4])
LECTURE[0, 1, 0, 2, [1, 2, 3]] = np.log([0.4, 0.3, 0.3])
LECTURE[0, 1, 0, 3, [1, 2]] = np.log([0.9, 0.1])


@pytest.mark.slow
def test_two_beams_find_what_greedy_search_misses():
    """With α = 0, the score is the sum of the lecture."""
    greedy, beams = (
        results(generate(LECTURE, TokenRules((1,)), SearchOptions(2, beams, 0.0)))[0]
        for beams in (1, 2)
    )
    assert_same(greedy, [([2, 1], math.log(0.6 * 0.4))])
    assert_same(beams, [([3, 1], math.log(0.4 * 0.9))])


@pytest.mark.slow
def test_a_sequence_that_does_not_exist_has_no_tokens():
    options = SearchOptions(1, num_beams=3, num_return_sequences=3)
    generated = generate(LECTURE, TokenRules((1,), pad_token_id=3), options)
    assert generated.token_ids.tolist() == [[[2], [3], [0]]]  # almost impossible
    none = generate(LECTURE, TokenRules((1,), suppress_tokens=(0, 1, 2)), options)
    assert none.lengths.tolist() == [[1, 0, 0]]
    assert none.token_ids.tolist() == [[[3], [0], [0]]]
    assert none.scores[0].tolist()[1:] == [-math.inf] * 2


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["transformers", "wmt"])
def test_a_row_does_not_depend_on_its_batch(penalty):
    table = random_table(5, 12, vocabulary=7)
    options = SearchOptions(LENGTH, num_beams=3, num_return_sequences=2, penalty=penalty)
    together = generate(table, TokenRules((1,)), options)
    for row in range(12):
        alone = generate(table[row : row + 1], TokenRules((1,)), options)
        for one, other in zip(alone, together, strict=True):
            assert one[0].tolist() == other[row].tolist()


@pytest.mark.slow
def test_a_shorter_prompt_does_not_depend_on_its_batch():
    """The rules see its tokens alone."""
    table = random_table(6, 2, vocabulary=6)
    rules = TokenRules((1,), min_length=4, no_repeat_ngram_size=2, repetition_penalty=1.5)
    options = SearchOptions(LENGTH, num_beams=2)
    short = generate(table, rules, options, prompt_ids=jnp.array([[2, 3], [4, 5]]))
    long = jnp.array([[NO_TOKEN, NO_TOKEN, 2, 3], [2, 4, 4, 5]])
    padded = generate(table, rules, options, prompt_ids=long)
    assert results(short)[0] == results(padded)[0]
    assert results(short)[1] != results(padded)[1]


def test_rules_hold_in_beams():
    rules = TokenRules((1,), forced_bos_token_id=3, forced_eos_token_ids=(1,), min_new_tokens=4)
    options = SearchOptions(LENGTH, num_beams=4, num_return_sequences=4)
    for row in results(generate(random_table(8, 10, 6), rules, options)):
        for tokens, _ in row:
            assert tokens[0] == 3
            assert tokens[-1] == 1
            assert tokens.index(1) == len(tokens) - 1 >= 4


@pytest.mark.slow
def test_no_more_steps_than_tokens():
    """The decoder runs once for each token after the first, and stops early."""
    table = np.zeros((2, 50, 3, 3, 3), np.float32)
    table[..., 1] = 9.0
    generated = generate(table, TokenRules((1,)), SearchOptions(50, num_beams=2))
    assert generated.lengths.tolist() == [[1], [1]]
    assert jnp.all(generated.token_ids[:, :, 1:] == 0)
