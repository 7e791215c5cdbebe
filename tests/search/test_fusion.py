"""Reciprocal-rank fusion by hand."""

import numpy as np

from bert_jax.search.fusion import fuse_hits, reciprocal_rank_fusion
from bert_jax.search.hits import Hit


def ranked(numbers):
    return np.zeros((len(numbers), len(numbers[0])), np.float32), np.array(numbers)


FIRST, SECOND = ranked([[7, 2, 9], [4, -1, -1]]), ranked([[2, 7], [-1, -1]])


def test_sums_of_reciprocal_ranks():
    scores, numbers = reciprocal_rank_fusion([FIRST, SECOND], 4)
    both = 1 / 61 + 1 / 62
    # 2 and 7 are first and second in turn: the lower number comes first.
    assert numbers.tolist() == [[2, 7, 9, -1], [4, -1, -1, -1]]
    expected = [[both, both, 1 / 63, -np.inf], [1 / 61, -np.inf, -np.inf, -np.inf]]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_hits_of_two_indexes():
    dense = [[Hit("a", 0.9, "dense"), Hit("b", 0.5)], []]
    sparse = [[Hit("c", 7.0), Hit("a", 3.0, "sparse")], []]
    (first, second) = fuse_hits([dense, sparse], 2)
    assert [(hit.id, hit.text) for hit in first] == [("a", "dense"), ("c", None)]
    np.testing.assert_allclose([hit.score for hit in first], [1 / 61 + 1 / 62, 1 / 61], rtol=1e-6)
    assert second == []
