"""Late interaction by hand, against a loop over all pairs, and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.maxsim import jax_maxsim


def test_a_document_scores_by_its_best_token_for_each_token_of_the_query():
    queries = np.array([[[1, 0], [0, 1], [9, 9]]], np.float32)
    documents = np.array([[[2, 1], [0, 3], [8, 8]], [[-1, -2], [5, 5], [5, 5]], [[7, 7]] * 3])
    document_mask = np.array([[True, True, False], [True, False, False], [False] * 3])
    scores = jax_maxsim(queries, np.array([[True, True, False]]), documents, document_mask)
    assert scores.tolist() == [[2 + 3, -1 - 2, -1e9]]


def at_once(queries, query_mask, documents, document_mask):
    """The definition, for documents with a token that counts."""
    products = jnp.einsum("BTX,MSX->BTMS", queries, documents, precision="highest")
    best = products.max(axis=-1, where=document_mask, initial=-jnp.inf)  # BTM
    return best.sum(axis=1, where=query_mask[:, :, None])


@pytest.mark.slow
def test_blocks_of_documents_change_neither_scores_nor_gradients():
    rng = np.random.default_rng(0)
    queries, documents = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 8), (37, 5, 8))
    )
    query_mask, document_mask = (rng.random(a.shape[:2]) < 0.7 for a in (queries, documents))
    document_mask[:, 0] = True
    weights = rng.standard_normal((3, 37)).astype(np.float32)

    def with_gradients(function):
        def loss(queries, documents):
            scores = function(queries, query_mask, documents, document_mask)
            return (jax.nn.softmax(scores) * weights).sum(), scores

        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(queries, documents)

    (gradients, scores), (expected, definition) = map(with_gradients, (jax_maxsim, at_once))
    np.testing.assert_allclose(scores, definition, atol=1e-5)
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-6)


@pytest.mark.slow
def test_the_gradient_of_an_empty_document_is_zero():
    vectors, mask = np.ones((1, 2, 3), np.float32), np.ones((1, 2), bool)

    def score(documents):
        return jax_maxsim(vectors, mask, documents, ~mask).sum()

    assert not jax.grad(score)(vectors).any()
