"""The losses of late interaction beside sentence-transformers: values, and gradients by vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.models.heads.token_vectors import MEAN_MAXSIM, TokenVectors
from bert_jax.tasks.base.retrieval.objectives import find_objective
from bert_jax.tasks.late_interaction.options import LateInteractionData
from bert_jax.tasks.late_interaction.task import LateInteraction

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
losses = pytest.importorskip("sentence_transformers.multi_vector_encoder.losses")
scoring = pytest.importorskip("sentence_transformers.multi_vector_encoder.scoring")

DRAW = np.random.default_rng(0)
QUERIES, DOCUMENTS, WIDTH = 6, 3, 8
LENGTHS = 5, 9


def side(*leading, length):
    """Vectors of tokens, and a mask with at least one token of each text."""
    vectors = DRAW.normal(size=(*leading, length, WIDTH)).astype(np.float32)
    counts = DRAW.integers(1, length + 1, (*leading, 1))
    return vectors, (np.arange(length) < counts).astype(np.float32)


QUERY, DOCUMENT = side(QUERIES, length=LENGTHS[0]), side(QUERIES, DOCUMENTS, length=LENGTHS[1])
TEACHER = DRAW.normal(size=(QUERIES, DOCUMENTS)).astype(np.float32)

# Keys of section `data`, and the peer's loss with its arguments.
CASES = {
    "contrastive": ({}, "MultipleNegativesRanking", {}),
    "scaled": ({"scale": 3.0}, "MultipleNegativesRanking", {"scale": 3.0}),
    "mean": (
        {"similarity": MEAN_MAXSIM, "scale": 5.0}, "MultipleNegativesRanking",
        {"scale": 5.0, "similarity_fct": "mean_colbert_scores"},
    ),
    "distribution": (
        {"loss": "kl_divergence", "temperature": 2.0}, "DistillKLDiv", {"temperature": 2.0},
    ),
    "margin": ({"loss": "margin_mse"}, "MarginMSE", {}),
}  # fmt: skip


class Encoded(torch.nn.Module):
    """A model whose vectors are known."""

    def forward(self, features, **_):
        return features


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients(tiny_config, name):
    keys, title, arguments = CASES[name]
    own = {
        key: getattr(scoring, value) if key == "similarity_fct" else value
        for key, value in arguments.items()
    }
    peer = getattr(losses, f"MultiVector{title}Loss")(Encoded(), **own)
    query, document = (torch.tensor(each[0], requires_grad=True) for each in (QUERY, DOCUMENT))
    masks = [torch.tensor(each[1]) for each in (QUERY, DOCUMENT)]
    columns = [(query, masks[0]), *zip(document.unbind(1), masks[1].unbind(1), strict=True)]
    features = [{"token_embeddings": vectors, "attention_mask": mask} for vectors, mask in columns]
    expected = peer(features, torch.tensor(TEACHER))
    expected.backward()

    data = LateInteractionData(**keys)
    stored = TokenVectors(similarity=keys.get("similarity", TokenVectors.similarity))
    description = ModelDescription(tiny_config, "encoder", stored_vectors=stored)
    interaction = LateInteraction(description, None)
    numbers = QUERIES + np.arange(QUERIES * DOCUMENTS).reshape(QUERIES, DOCUMENTS)
    batch = {
        "weights": np.ones(QUERIES, np.float32),
        "query_numbers": np.arange(QUERIES),
        "document_numbers": numbers,
        "related_numbers": np.stack([np.arange(QUERIES), numbers[:, 0]], axis=1),
        "scores": TEACHER,
    }
    batch = jax.tree.map(jnp.asarray, batch)
    objective = find_objective(data, are_cosines=interaction.are_cosines)

    def mean(query, document):
        vectors = RankedVectors((query, QUERY[1]), (document, DOCUMENT[1]))
        return objective.losses(interaction, vectors, batch).mean()

    value, gradients = jax.jit(jax.value_and_grad(mean, (0, 1)))(QUERY[0], DOCUMENT[0])
    assert float(value) == pytest.approx(expected.item(), rel=1e-5)
    for actual, tensor in zip(gradients, (query, document), strict=True):
        assert np.abs(tensor.grad.numpy()).max() > 1e-2
        np.testing.assert_allclose(actual, tensor.grad.numpy(), atol=1e-5)
