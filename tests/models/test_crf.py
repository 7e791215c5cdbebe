"""The CRF against a sum over all paths."""

import itertools

import jax
import numpy as np
import pytest

from bert_jax.models import crf
from bert_jax.models.crf import IMPOSSIBLE, CRFParams

log_likelihood, marginals, viterbi = map(jax.jit, (crf.log_likelihood, crf.marginals, crf.viterbi))


@jax.jit
def log_partition(emissions, mask, chain):
    return crf.log_partition_parts(emissions, mask, chain).sum(axis=1)


def path_score(path, emissions, chain):
    """The score of one path, by the formula."""
    score = chain.start[path[0]] + chain.end[path[-1]]
    score += sum(emissions[word, tag] for word, tag in enumerate(path))
    return score + sum(chain.transitions[a, b] for a, b in itertools.pairwise(path))


def all_paths(emissions, chain):
    """Every path and its score in double precision, the words of one row."""
    words, tags = emissions.shape
    paths = list(itertools.product(range(tags), repeat=words))
    double = CRFParams(*(np.asarray(part, np.float64) for part in chain))
    return paths, np.array(
        [path_score(path, emissions.astype(np.float64), double) for path in paths]
    )


def random_chain(generator, tags, scale=1.0):
    return CRFParams(
        *(
            generator.normal(0, scale, shape).astype(np.float32)
            for shape in ((tags, tags), tags, tags)
        )
    )


# Emissions of all tests are [4, 5, 3] where they can be: each function is compiled once.
LENGTHS = [5, 1, 3, 4]
MASK = np.arange(5) < np.array(LENGTHS)[:, None]
ALL = np.ones((4, 5), bool)


@pytest.mark.parametrize(("tags", "scale"), [(1, 3.0), (3, 0.1), (3, 3.0), (3, 40.0)])
def test_likelihood_best_path_and_marginals_by_brute_force(tags, scale):
    generator = np.random.default_rng(7)
    emissions = generator.normal(0, scale, (4, 5, tags)).astype(np.float32)
    gold = generator.integers(0, tags, (4, 5)).astype(np.int32)
    chain = random_chain(generator, tags, scale)

    likelihood = np.asarray(log_likelihood(emissions, gold, MASK, chain))
    total = np.asarray(log_partition(emissions, MASK, chain))
    best = np.asarray(viterbi(emissions, MASK, chain))
    probabilities = np.asarray(marginals(emissions, MASK, chain))
    for row, length in enumerate(LENGTHS):
        paths, scores = all_paths(emissions[row, :length], chain)
        log_z = np.logaddexp.reduce(scores)
        np.testing.assert_allclose(total[row], log_z, rtol=1e-5, atol=1e-5)
        gold_score = scores[paths.index(tuple(gold[row, :length]))]
        np.testing.assert_allclose(likelihood[row], gold_score - log_z, rtol=1e-5, atol=2e-4)
        assert tuple(best[row, :length].tolist()) == paths[scores.argmax()]
        assert not best[row, length:].any()
        expected = np.zeros((5, tags))
        for path, score in zip(paths, scores, strict=True):
            for word, tag in enumerate(path):
                expected[word, tag] += np.exp(score - log_z)
        np.testing.assert_allclose(probabilities[row], expected, atol=2e-4)


def test_a_chain_by_hand():
    """Two words, three tags: O (0), B (1) and I (2); a step from O to B is worth ln 3."""
    transitions = np.zeros((3, 3), np.float32)
    transitions[0, 1] = np.log(3)
    chain = CRFParams(transitions, *np.zeros((2, 3), np.float32))
    emissions = np.zeros((4, 5, 3), np.float32)
    mask = ALL & (np.arange(5) < 2)
    # The path OB weighs 3, the eight others 1.
    np.testing.assert_allclose(np.exp(log_partition(emissions, mask, chain)), 11.0, rtol=1e-6)
    gold = np.int32([[0, 1, 0, 0, 0]] * 4)
    likelihood = log_likelihood(emissions, gold, mask, chain)
    np.testing.assert_allclose(np.exp(likelihood), 3 / 11, rtol=1e-6)
    assert viterbi(emissions, mask, chain).tolist() == gold.tolist()
    np.testing.assert_allclose(
        np.asarray(marginals(emissions, mask, chain))[0, :2],
        [[5 / 11, 3 / 11, 3 / 11], [3 / 11, 5 / 11, 3 / 11]],
        rtol=1e-6,
    )


def test_a_part_of_a_sentence_between_known_tags():
    """A conditional probability over all paths, for several parts of 5 words, a row for each."""
    generator = np.random.default_rng(11)
    emissions = generator.normal(size=(1, 5, 3)).astype(np.float32)
    chain = random_chain(generator, 3)
    gold = np.int32([2, 0, 1, 1, 0])
    paths, scores = all_paths(emissions[0], chain)
    first, last = np.array([(1, 4), (0, 2), (3, 5), (0, 5)]).T
    before = np.where(first > 0, gold[first - 1], -1)
    after = np.where(last < 5, gold[last % 5], -1)
    parts = (np.arange(5) + first[:, None]) % 5  # the part comes first
    likelihood = log_likelihood(
        emissions[0][parts],
        gold[parts],
        np.arange(5) < (last - first)[:, None],
        jax.jit(CRFParams.between)(chain, before, after),
    )
    for row in range(4):
        outside = [word for word in range(5) if not first[row] <= word < last[row]]
        agrees = np.array([all(path[word] == gold[word] for word in outside) for path in paths])
        expected = scores[paths.index(tuple(gold))] - np.logaddexp.reduce(scores[agrees])
        np.testing.assert_allclose(np.asarray(likelihood)[row], expected, rtol=1e-4)


def test_a_row_without_words_has_likelihood_1_and_no_gradient():
    chain = random_chain(np.random.default_rng(0), 3)
    emissions = np.ones((4, 5, 3), np.float32)
    mask = MASK * (np.arange(4)[:, None] > 0)
    gold = np.where(mask, 1, -1).astype(np.int32)

    def loss(emissions, chain):
        return crf.log_likelihood(emissions, gold, mask, chain)[0]

    value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(emissions, chain)
    assert value == 0
    assert not any(np.asarray(gradient).any() for gradient in jax.tree.leaves(gradients))
    assert not np.asarray(viterbi(emissions, mask, chain))[0].any()
    assert not np.asarray(marginals(emissions, mask, chain))[0].any()


def test_an_impossible_transition_has_probability_0_and_no_nan():
    generator = np.random.default_rng(1)
    transitions = np.zeros((3, 3), np.float32)
    transitions[0, 2] = IMPOSSIBLE
    start = np.array([0, 0, IMPOSSIBLE], np.float32)
    chain = CRFParams(transitions, start, np.zeros(3, np.float32))
    # The last tag is the best for every word.
    emissions = generator.normal((0, 0, 5), 1, (1, 2000, 3)).astype(np.float32)
    mask = np.ones((1, 2000), bool)
    path = np.asarray(viterbi(emissions, mask, chain))[0].tolist()
    assert path[0] != 2
    assert (0, 2) not in set(itertools.pairwise(path))
    probabilities = np.asarray(marginals(emissions, mask, chain))
    assert np.isfinite(probabilities).all()
    assert probabilities[0, 0, 2] == 0
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1, atol=1e-5)


def test_a_long_sentence_stays_finite():
    emissions = np.full((1, 2000, 3), 30.0, np.float32)
    mask = np.ones((1, 2000), bool)
    chain = CRFParams(*(np.zeros(shape, np.float32) for shape in ((3, 3), 3, 3)))
    expected = 2000 * (30 + np.log(3))
    np.testing.assert_allclose(log_partition(emissions, mask, chain), [expected], rtol=1e-6)
    np.testing.assert_allclose(marginals(emissions, mask, chain), 1 / 3, atol=1e-5)
    gold = np.ones((1, 2000), np.int32)
    likelihood = log_likelihood(emissions, gold, mask, chain)
    np.testing.assert_allclose(likelihood, [-2000 * np.log(3)], rtol=1e-5)


def test_marginals_need_no_memory_for_the_square_of_the_tags():
    rows, words, tags = 4, 128, 32
    arguments = (
        np.zeros((rows, words, tags), np.float32),
        np.ones((rows, words), bool),
        CRFParams(*(np.zeros(shape, np.float32) for shape in ((tags, tags), tags, tags))),
    )
    needed = marginals.lower(*arguments).compile().memory_analysis()
    # Differentiated automatically, at least rows · words · tags² float32.
    assert needed.temp_size_in_bytes < rows * words * tags**2 * 4 / 2
