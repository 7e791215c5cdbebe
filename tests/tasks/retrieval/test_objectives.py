"""Losses of retrieval: by hand, as recorded from sentence-transformers, and with it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.tasks.base.retrieval.objectives import find_objective
from bert_jax.tasks.base.retrieval.options import DIRECTIONS
from bert_jax.tasks.retrieval.options import DualEncoderData
from bert_jax.tasks.retrieval.task import DualInteraction

# Vectors of 4 queries with 3 documents each, the positive first, and a teacher's scores.
DRAW = np.random.default_rng(0)
QUERY = DRAW.normal(size=(4, 6)).astype(np.float32)
DOCUMENT = DRAW.normal(size=(4, 3, 6)).astype(np.float32)
TEACHER = DRAW.normal(size=(4, 3)).astype(np.float32)

# Keys of a config; the loss of sentence-transformers 6.2 and its arguments; whether its data are
# pairs with labels; loss and length of the gradient, recorded by `test_as_the_peer`.
PEER = "MultipleNegativesRankingLoss"
CASES = {
    "in batch": ({}, PEER, {}, False, 12.68385, 9.135663),
    "dot": (
        {"similarity": "dot", "scale": 1.0}, PEER, {"scale": 1.0, "similarity_fct": "dot_score"},
        False, 3.678465, 1.783417,
    ),
    "symmetric": (
        {"directions": DIRECTIONS[:2]}, PEER,
        {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"},
        False, 10.91384, 9.329556,
    ),
    "all directions": (
        {"directions": DIRECTIONS}, PEER,
        {"directions": ("query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc")},
        False, 13.51606, 9.360074,
    ),
    "matryoshka": (
        {"matryoshka": (6, 2)}, PEER, {"matryoshka_dims": [6, 2]}, False, 17.88695, 21.02183,
    ),
    "margin": (
        {"loss": "margin_mse", "similarity": "dot"}, "MarginMSELoss", {}, False,
        9.393184, 11.07443,
    ),
    "distribution": (
        {"loss": "kl_divergence", "similarity": "dot", "temperature": 2.0}, "DistillKLDivLoss",
        {"temperature": 2.0}, False, 1.968666, 1.662498,
    ),
    "triplet": (
        {"loss": "triplet", "similarity": "euclidean", "margin": 2.0}, "TripletLoss",
        {"triplet_margin": 2.0}, False, 2.275838, 0.9293361,
    ),
    "contrastive": ({"loss": "contrastive"}, "ContrastiveLoss", {}, True, 0.1531228, 0.1364469),
    "order": ({"loss": "cosent"}, "CoSENTLoss", {}, True, 22.20355, 17.03789),
}  # fmt: skip


def loss_and_gradient(config, keys, query, document, **arrays):
    """The mean loss, and its gradient in both arrays of vectors."""
    data = DualEncoderData(**keys)
    vectors = TextVectors(similarity=data.similarity or "cosine")
    description = ModelDescription(config, "encoder", stored_vectors=vectors)
    interaction = DualInteraction(description, None, widths=data.matryoshka)
    rows, width = document.shape[:2]
    numbers = rows + np.arange(rows * width).reshape(rows, width)
    batch = {
        "weights": np.ones(rows, np.float32),
        "query_numbers": np.arange(rows),
        "document_numbers": numbers,
        "related_numbers": np.stack([np.arange(rows), numbers[:, 0]], axis=1),
        **arrays,
    }
    batch = jax.tree.map(jnp.asarray, batch)

    def mean(query, document):
        views = interaction.views(RankedVectors(query, document))
        objective = find_objective(data, are_cosines=interaction.are_cosines)
        losses = sum(objective.losses(interaction, view, batch) for view in views)
        return (losses * batch["weights"]).sum() / batch["weights"].sum()

    return jax.jit(jax.value_and_grad(mean, (0, 1)))(jnp.asarray(query), jnp.asarray(document))


def grades_of(keys):
    """Labels of the 12 pairs of a query with a document."""
    return [1, 0, 0] * 4 if keys["loss"] == "contrastive" else [2, 1, 0, 1, 1, 0] * 2


def of_case(config, keys, is_labelled):
    if is_labelled:  # each document is a pair with its query
        labels = np.array(grades_of(keys), np.float32)[:, None]
        pairs = QUERY.repeat(3, axis=0), DOCUMENT.reshape(12, 1, 6)
        return loss_and_gradient(config, keys, *pairs, grades=labels)
    document = DOCUMENT[:, :2] if keys.get("loss") == "triplet" else DOCUMENT
    return loss_and_gradient(config, keys, QUERY, document, scores=TEACHER)


def length(gradients):
    return float(np.sqrt(sum(np.square(each).sum() for each in gradients)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_as_recorded(tiny_config, name):
    keys, _, _, is_labelled, loss, gradient = CASES[name]
    actual, gradients = of_case(tiny_config, keys, is_labelled)
    assert actual == pytest.approx(loss, rel=1e-5)
    assert length(gradients) == pytest.approx(gradient, rel=1e-5)


@pytest.mark.slow
def test_known_positives_and_equal_texts_are_no_negatives(tiny_config):
    """All vectors are equal: the loss of a query is the log of its number of candidates."""
    ones = np.ones((4, 2, 3), np.float32)
    # Query 0 has the positives 4 and 5, and query 2 is a document elsewhere; row 3 is a filler.
    numbers = {
        "query_numbers": np.array([0, 1, 2, -1]),
        "document_numbers": np.array([[4, 6], [5, 2], [7, -1], [-1, -1]]),
        "related_numbers": np.array([[0, 4, 5], [1, 5, -2], [2, 7, -2], [-2, -2, -2]]),
        "weights": np.eye(4, dtype=np.float32)[0],
    }
    counts = {}
    for name, directions in {"documents": DIRECTIONS[:1], "queries": DIRECTIONS}.items():
        counts[name] = []
        for row in range(3):
            numbers["weights"] = np.eye(4, dtype=np.float32)[row]
            keys = {"directions": directions, "similarity": "dot", "scale": 1.0}
            loss, _ = loss_and_gradient(tiny_config, keys, ones[:, 0], ones, **numbers)
            counts[name].append(round(float(np.exp(loss))))
    # 4, 6, 2, 7 for the first query: 5 is a positive. 2 is the text of the third one.
    assert counts["documents"] == [4, 5, 4]
    # For the first one also: the queries 0, 1 and 2 for document 4; query 2 for query 0, since 1
    # has another positive of it; the documents 2 and 7 for document 4.
    assert counts["queries"] == [4 + 3 + 1 + 2, 5 + 2 + 1 + 3, 4 + 3 + 2 + 3]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_as_the_peer(tiny_config, name):
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    util = pytest.importorskip("sentence_transformers.util")
    keys, kind, arguments, is_labelled, *_ = CASES[name]
    widths = arguments.get("matryoshka_dims")
    own = {
        key: getattr(util, value) if key == "similarity_fct" else value
        for key, value in arguments.items()
        if key != "matryoshka_dims"
    }
    module = getattr(peer, kind)(None, **own)
    query = torch.tensor(QUERY.repeat(3, axis=0) if is_labelled else QUERY, requires_grad=True)
    document = torch.tensor(DOCUMENT, requires_grad=True)
    columns = [query, *document.unbind(1)]
    labels = torch.tensor(TEACHER)
    if is_labelled:
        columns, labels = [query, document.reshape(12, 6)], torch.tensor(grades_of(keys))
    columns = columns[:3] if kind == "TripletLoss" else columns
    if widths:
        normalize = functools.partial(torch.nn.functional.normalize, p=2, dim=-1)
        views = [[normalize(each[..., :width]) for each in columns] for width in widths]
    else:
        views = [columns]
    value = sum(module.compute_loss_from_embeddings(view, labels) for view in views)
    value.backward()
    expected = [query.grad.numpy(), document.grad.numpy()]
    if is_labelled:
        expected[1] = expected[1].reshape(12, 1, 6)
    if kind == "TripletLoss":
        expected[1] = expected[1][:, :2]
    actual, gradients = of_case(tiny_config, keys, is_labelled)
    assert actual == pytest.approx(value.item(), rel=1e-5)
    for each, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(each, other, atol=1e-5)
