"""The chain against all paths, counted one by one."""

import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis.extra import numpy as arrays

from bert_jax.models import crf
from bert_jax.models.crf import IMPOSSIBLE, CRFParams

log_likelihood, marginals, viterbi = map(jax.jit, (crf.log_likelihood, crf.marginals, crf.viterbi))


@jax.jit
def log_partition(emissions, mask, chain):
    return crf.log_partition_parts(emissions, mask, chain).sum(axis=1)


def path_score(path, emissions, chain):
    """The score of one path, as the formula has it."""
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
            jnp.asarray(generator.normal(0, scale, shape), jnp.float32)
            for shape in ((tags, tags), tags, tags)
        )
    )


LENGTHS = [5, 1, 3, 4]
MASK = np.arange(5) < np.array(LENGTHS)[:, None]


@pytest.mark.parametrize("tags", [1, 4])
@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_likelihood_path_and_marginals_are_those_of_all_paths(tags, scale):
    generator = np.random.default_rng(7)
    emissions = generator.normal(0, scale, (4, 5, tags)).astype(np.float32)
    gold = generator.integers(0, tags, (4, 5)).astype(np.int32)
    chain = random_chain(generator, tags, scale)

    likelihood = log_likelihood(emissions, gold, MASK, chain)
    total = log_partition(emissions, MASK, chain)
    best = viterbi(emissions, MASK, chain)
    probabilities = marginals(emissions, MASK, chain)
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


def test_a_chain_by_eye():
    """Two words, two tags: O (0) and B (1); a step from O to B is worth ln 3."""
    three = np.log(np.float32(3))
    chain = CRFParams(np.array([[0, three], [0, 0]], np.float32), np.zeros(2), np.zeros(2))
    emissions = np.zeros((1, 2, 2), np.float32)
    mask = np.ones((1, 2), bool)
    # The paths OO, OB, BO, BB weigh 1, 3, 1, 1.
    np.testing.assert_allclose(np.exp(log_partition(emissions, mask, chain)), [6.0], rtol=1e-6)
    likelihood = log_likelihood(emissions, np.array([[0, 1]]), mask, chain)
    np.testing.assert_allclose(np.exp(likelihood), [0.5], rtol=1e-6)
    assert viterbi(emissions, mask, chain).tolist() == [[0, 1]]
    np.testing.assert_allclose(
        marginals(emissions, mask, chain)[0], [[4 / 6, 2 / 6], [2 / 6, 4 / 6]], rtol=1e-6
    )


def test_each_row_may_have_its_own_starts_and_ends():
    generator = np.random.default_rng(3)
    emissions = generator.normal(size=(2, 3, 3)).astype(np.float32)
    gold = np.array([[0, 1, 2], [2, 2, 0]])
    mask = np.ones((2, 3), bool)
    transitions = generator.normal(size=(3, 3)).astype(np.float32)
    start, end = generator.normal(size=(2, 2, 3)).astype(np.float32)
    together = log_likelihood(emissions, gold, mask, CRFParams(transitions, start, end))
    for row in range(2):
        alone = log_likelihood(
            emissions[row : row + 1],
            gold[row : row + 1],
            mask[row : row + 1],
            CRFParams(transitions, start[row], end[row]),
        )
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-6)


def test_a_part_of_a_sentence_given_the_tags_beside_it():
    """A conditional probability over all paths, for several parts of 5 words."""
    generator = np.random.default_rng(11)
    emissions = generator.normal(size=(1, 5, 3)).astype(np.float32)
    chain = random_chain(generator, 3)
    gold = (2, 0, 1, 1, 0)
    paths, scores = all_paths(emissions[0], chain)
    for first, last in ((1, 4), (0, 2), (3, 5), (0, 5)):
        outside = [place for place in range(5) if not first <= place < last]
        agrees = np.array([all(path[place] == gold[place] for place in outside) for path in paths])
        expected = scores[paths.index(gold)] - np.logaddexp.reduce(scores[agrees])
        before = np.array([gold[first - 1] if first > 0 else -1])
        after = np.array([gold[last] if last < 5 else -1])
        part = np.roll(np.arange(5), -first)  # the part first, then what the mask hides
        found = log_likelihood(
            emissions[:, part],
            np.array([gold])[:, part],
            np.arange(5)[None] < last - first,
            chain.between(before, after),
        )
        np.testing.assert_allclose(found[0], expected, rtol=1e-4)


def test_a_row_without_words_has_likelihood_1_and_no_gradient():
    chain = random_chain(np.random.default_rng(0), 3)
    emissions = jnp.ones((2, 4, 3))
    mask = np.array([[False] * 4, [True, True, False, False]])
    gold = np.full((2, 4), -1)
    gold[1, :2] = 1

    def loss(emissions, chain):
        return log_likelihood(emissions, gold, mask, chain)[0]

    value, gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))(emissions, chain)
    assert value == 0
    assert not any(np.asarray(gradient).any() for gradient in jax.tree.leaves(gradients))
    assert not viterbi(emissions, mask, chain)[0].any()
    assert not marginals(emissions, mask, chain)[0].any()


def test_an_impossible_step_is_never_taken_and_has_no_nan():
    generator = np.random.default_rng(1)
    transitions = np.zeros((3, 3), np.float32)
    transitions[0, 2] = IMPOSSIBLE
    start = np.array([0, 0, IMPOSSIBLE], np.float32)
    chain = CRFParams(transitions, start, np.zeros(3, np.float32))
    # The last tag is the best for every word.
    emissions = generator.normal((0, 0, 5), 1, (1, 2000, 3)).astype(np.float32)
    mask = np.ones((1, 2000), bool)
    path = viterbi(emissions, mask, chain)[0].tolist()
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


@hypothesis.given(
    arrays.arrays(np.float32, (1, 3, 3), elements=st.floats(-20, 20, width=32)),
    arrays.arrays(np.float32, (5, 3), elements=st.floats(-20, 20, width=32)),
)
@hypothesis.settings(max_examples=60)
def test_probabilities_of_all_paths_sum_to_one(emissions, scores):
    chain = CRFParams(scores[:3], scores[3], scores[4])
    paths = np.array(list(itertools.product(range(3), repeat=3)), np.int32)
    many = np.repeat(emissions, len(paths), axis=0)
    likelihoods = log_likelihood(many, paths, np.ones((len(paths), 3), bool), chain)
    np.testing.assert_allclose(np.exp(likelihoods).sum(), 1, rtol=1e-4)


def test_marginals_are_the_derivatives_of_log_z():
    generator = np.random.default_rng(13)
    emissions = jnp.asarray(generator.normal(0, 2, (4, 5, 6)), jnp.float32)
    transitions = jnp.asarray(generator.normal(0, 2, (6, 6)), jnp.float32)
    start, end = jnp.asarray(generator.normal(0, 2, (2, 4, 6)), jnp.float32)
    chain = CRFParams(transitions, start, end)
    expected = jax.jit(jax.grad(lambda scores: log_partition(scores, MASK, chain).sum()))(emissions)
    found = marginals(emissions, MASK, chain)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_marginals_keep_no_square_of_the_tags_for_each_word():
    rows, words, tags = 4, 128, 32
    arguments = (
        jnp.zeros((rows, words, tags)),
        jnp.ones((rows, words), bool),
        CRFParams(jnp.zeros((tags, tags)), jnp.zeros(tags), jnp.zeros(tags)),
    )
    needed = marginals.lower(*arguments).compile().memory_analysis()
    # Differentiated automatically, at least rows · words · tags² float32.
    assert needed.temp_size_in_bytes < rows * words * tags**2 * 4 / 2
