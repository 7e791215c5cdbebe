"""Exact search against a comparison of everything with everything, FAISS, and other devices."""

import os
import subprocess
import sys

import faiss
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.metrics.similarity import similarities
from bert_jax.models.heads.text_vectors import SIMILARITIES
from bert_jax.search import exact

VECTORS = np.array([[1, 0], [0, 2], [3, 3], [0, 2], [0, 0]], np.float32)
QUERIES = np.array([[0, 1], [1, 0]], np.float32)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """A collection of a few rows has several blocks."""
    monkeypatch.setattr(exact, "_ROWS", 64)
    monkeypatch.setattr(exact, "_QUERIES", 4)


def top_k(queries, vectors, k, **options):
    return exact.ExactSearcher(vectors, **options).search(queries, k)


@pytest.mark.parametrize(
    ("similarity", "scores", "numbers"),
    [
        ("dot", [[3, 2, 2], [3, 1, 0]], [[2, 1, 3], [2, 0, 1]]),
        ("cosine", [[1, 1, 0.5**0.5], [1, 0.5**0.5, 0]], [[1, 3, 2], [0, 2, 1]]),
        ("euclidean", [[-1, -1, -1], [0, -1, -(5**0.5)]], [[1, 3, 4], [0, 4, 1]]),
        ("manhattan", [[-1, -1, -1], [0, -1, -3]], [[1, 3, 4], [0, 4, 1]]),
    ],
)
def test_the_nearest_come_first_and_of_equal_ones_the_lower_number(similarity, scores, numbers):
    found = top_k(QUERIES, VECTORS, 3, similarity=similarity)
    np.testing.assert_allclose(found[0], scores, rtol=1e-6)
    assert found[1].tolist() == numbers
    assert (found[0].dtype, found[1].dtype) == (np.float32, np.int64)


def test_a_collection_smaller_than_k():
    scores, numbers = top_k(QUERIES, VECTORS[:1], 3, similarity="dot")
    assert scores.tolist() == [[0, -np.inf, -np.inf], [1, -np.inf, -np.inf]]
    assert numbers.tolist() == [[0, -1, -1]] * 2
    assert top_k(QUERIES, [], 2)[1].tolist() == [[-1, -1]] * 2
    assert top_k(QUERIES[:0], VECTORS, 2)[1].shape == (0, 2)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.slow
def test_equal_to_a_comparison_with_all_vectors(similarity):
    rng = np.random.default_rng(0)
    for n, width, k in ((63, 5, 1), (64, 16, 64), (333, 7, 100), (200, 3, 300)):
        # A third of the vectors are copies of others.
        vectors = rng.standard_normal((n, width), np.float32)[rng.integers(0, n, n)]
        queries = rng.standard_normal((6, width), np.float32)
        all_scores = similarities(queries, vectors, similarity)
        expected = np.argsort(-all_scores, axis=1, kind="stable")[:, :k]
        scores, numbers = top_k(queries, vectors, k, similarity=similarity)
        assert (numbers[:, :n] == expected).all()
        best = np.take_along_axis(all_scores, expected, axis=1)
        np.testing.assert_allclose(scores[:, :n], best, atol=2e-6)
        # Blocks of any length.
        blocks = np.split(vectors, [1, 2, 60])
        searcher = exact.ExactSearcher(iter(blocks), similarity=similarity)
        other = searcher.search(queries, k)
        assert (other[0] == scores).all()
        assert (other[1] == numbers).all()
        assert len(searcher) == n


def test_equal_to_the_flat_index_of_faiss():
    rng = np.random.default_rng(1)
    vectors, queries = (rng.standard_normal((n, 32), np.float32) for n in (1000, 9))
    index = faiss.IndexFlatIP(32)
    index.add(vectors)
    scores, numbers = top_k(queries, vectors, 20, similarity="dot")
    expected = index.search(queries, 20)
    np.testing.assert_allclose(scores, expected[0], rtol=1e-5)
    assert (numbers == expected[1]).all()


def test_an_approximation_as_of_tpus(monkeypatch):
    """Of four rows of a block that are 16 apart, only the nearest one is found."""

    def approx_max_k(scores, k, recall_target):
        assert recall_target == 0.8
        groups = scores.reshape(-1, 4, 16)
        nearest, columns = jax.lax.top_k(groups.max(axis=1), k)
        return nearest, columns + 16 * jnp.take_along_axis(groups.argmax(axis=1), columns, axis=1)

    monkeypatch.setattr(jax.lax, "approx_max_k", approx_max_k)
    rng = np.random.default_rng(1)
    vectors, queries = (rng.standard_normal((n, 32), np.float32) for n in (200, 9))
    _, numbers = top_k(queries, vectors, 16, similarity="dot", recall_target=0.8)
    scores = np.pad(queries @ vectors.T, ((0, 0), (0, 56)), constant_values=-np.inf)
    groups = scores.reshape(9, 4, 4, 16)  # four blocks of 64 rows
    nearest = np.where(groups == groups.max(axis=2, keepdims=True), groups, -np.inf)
    assert (numbers == np.argsort(-nearest.reshape(9, -1), axis=1)[:, :16]).all()
    assert (numbers != np.argsort(-scores, axis=1)[:, :16]).any(axis=1).sum() == 8


def test_vectors_in_half_precision_are_compared_in_full():
    vectors = np.array([[1, 2**-12], [1, 0]], np.float16)
    scores, _ = top_k([[1, 1]], vectors, 2, similarity="dot")
    assert scores.tolist() == [[1 + 2**-12, 1]]


@pytest.mark.parametrize(
    ("queries", "vectors", "options", "message"),
    [
        (QUERIES, [VECTORS, VECTORS * np.nan], {}, "vector 5 has a value that is not finite"),
        ([[0, 1], [np.inf, 0]], VECTORS, {}, "query 1 has a value that is not finite"),
        (QUERIES * 1e30, VECTORS * 1e30, {}, "a similarity exceeds float32: normalise"),
        (QUERIES[:, :1], VECTORS, {}, "queries have 1 values, the vectors of the collection 2"),
        (QUERIES, VECTORS, {"k": 0}, "top_k is 0; it must be at least 1"),
        (QUERIES, VECTORS, {"similarity": "l2"}, "similarity is 'l2'; known are cosine, dot"),
        (QUERIES, VECTORS, {"recall_target": 1.0}, "recall_target is 1.0; it must be above 0"),
    ],
)
def test_what_is_refused(queries, vectors, options, message):
    options = {"k": 1, "similarity": "dot"} | options
    with pytest.raises(UserError, match=message):
        top_k(queries, vectors, **options)


PROGRAM = """
import sys, numpy as np
from bert_jax.search import exact
from bert_jax.sharding.mesh import MeshShape, make_mesh
exact._ROWS = 128
rng = np.random.default_rng(0)
vectors = rng.standard_normal((3000, 24), np.float32)[rng.integers(0, 2000, 3000)]
queries = rng.standard_normal((9, 24), np.float32)
mesh = make_mesh(MeshShape(fsdp=int(sys.argv[1])))
found = [exact.ExactSearcher(vectors, similarity=kind, mesh=mesh).search(queries, 50)
         for kind in ("cosine", "dot", "euclidean", "manhattan")]
print(mesh.size, file=sys.stderr)
sys.stdout.buffer.write(b"".join(part.tobytes() for pair in found for part in pair))
"""


@pytest.mark.slow
def test_eight_devices_find_the_same_bits_as_one():
    outputs = {}
    for devices, fsdp in ((1, 1), (8, 2)):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(fsdp)],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
            capture_output=True,
            check=True,
        )
        assert done.stderr.split()[-1] == str(devices).encode()
        outputs[devices] = done.stdout
    assert len(outputs[1]) == 4 * 9 * 50 * (4 + 8)
    assert outputs[1] == outputs[8]
