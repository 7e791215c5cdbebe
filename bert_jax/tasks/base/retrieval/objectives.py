"""The losses of a config: what each makes of the vectors of a batch.

    multiple_negatives  a query's positive against all documents of the global batch
    margin_mse          the margin of a teacher between the positive and each negative
    kl_divergence       the distribution of a teacher over the documents of a query
    triplet             a margin between the positive and each negative
    contrastive         a query and a document with grade above 0, or 0
    cosent              the order of the grades of all pairs of the global batch

Documents of other queries are no negatives if they equal the query, or any of its known positives.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.tasks.base import ranking_losses as losses
from bert_jax.tasks.base.ranking_rows import PER_DOCUMENT, PER_QUERY, RankingObjective
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.base.retrieval.options import RetrievalData

Batch = Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Objective(RankingObjective):
    """A loss.

    Attributes:
        losses: interaction, vectors and batch → float32 [B].
        is_global: whether the loss of an example depends on the other examples of its batch.
    """

    losses: Callable[[Interaction, RankedVectors, Batch], jax.Array]
    is_global: bool = False


def find_objective(data: RetrievalData, *, are_cosines: bool) -> Objective:
    """The loss of a config; `are_cosines` as in `Interaction`."""
    scale = data.scale or (20.0 if are_cosines else 1.0)
    match data.loss:
        case "multiple_negatives":
            directions = frozenset(data.directions)
            loss = functools.partial(_multiple_negatives, scale=scale, directions=directions)
            return Objective(loss, is_global=True)
        case "margin_mse":
            return Objective(_margin_mse, least=2, needs_scores=True)
        case "kl_divergence":
            loss = functools.partial(_kl_divergence, temperature=data.temperature)
            return Objective(loss, unit=PER_QUERY, least=2, needs_scores=True)
        case "triplet":
            return Objective(functools.partial(_triplet, margin=data.margin), least=2)
        case "contrastive":
            return Objective(functools.partial(_contrastive, margin=data.margin), unit=PER_DOCUMENT)
    return Objective(functools.partial(_cosent, scale=scale), unit=PER_DOCUMENT, is_global=True)


def _multiple_negatives(
    interaction: Interaction,
    vectors: RankedVectors,
    batch: Batch,
    *,
    scale: float,
    directions: frozenset[str],
) -> jax.Array:
    """Cross-entropy of each positive among the candidates of all directions.

    Queries to documents, and documents to queries, are two losses, and their mean is taken. With
    candidates of the same kind (GTE: Li et al., 2023, https://arxiv.org/abs/2308.03281, section
    3.3) all are candidates of one softmax.
    """
    query, document = vectors
    numbers, related = batch["document_numbers"], batch["related_numbers"]  # BK, BR
    rows, width = numbers.shape
    positive_columns = jnp.arange(rows) * width
    itself = jnp.eye(rows, dtype=bool)
    is_query = numbers[:, 0] >= 0

    scores = {"query_to_document": interaction.scores(query, document)}
    known = _are_among(numbers.reshape(-1), related)  # B, B · K
    candidates = {"query_to_document": (numbers.reshape(-1) >= 0) & ~known}
    if "document_to_query" in directions:
        scores["document_to_query"] = scores["query_to_document"][:, positive_columns].T
        candidates["document_to_query"] = itself | (is_query & ~known[:, positive_columns].T)
    if "query_to_query" in directions:
        as_documents = jax.tree.map(lambda array: array[:, None], query)
        scores["query_to_query"] = interaction.scores(query, as_documents)
        equal = _are_among(batch["query_numbers"], related)
        same = equal | known[:, positive_columns] | known[:, positive_columns].T
        candidates["query_to_query"] = is_query & ~same
    if "document_to_document" in directions:
        positives = jax.tree.map(lambda array: array[:, 0], document)
        scores["document_to_document"] = interaction.scores(positives, document)
        is_other_query = ~jnp.repeat(itself, width, axis=1)
        candidates["document_to_document"] = candidates["query_to_document"] & is_other_query

    if directions == {"query_to_document", "document_to_query"}:
        columns = {"query_to_document": positive_columns, "document_to_query": jnp.arange(rows)}
        direction_losses = [
            losses.cross_entropy(scale * scores[name], columns[name], candidates[name])
            for name in scores
        ]
        return jnp.stack(direction_losses).mean(axis=0)
    joint, are_candidates = (
        jnp.concatenate(list(each.values()), axis=1) for each in (scores, candidates)
    )
    return losses.cross_entropy(scale * joint, positive_columns, are_candidates)


def _are_among(numbers: jax.Array, related: jax.Array) -> jax.Array:
    """Whether each number, int32 [M], is one of a row of int32 [B, R]: bool [B, M]."""
    return (numbers[:, None] == related[:, None]).any(axis=-1)


def _margin_mse(interaction: Interaction, vectors: RankedVectors, batch: Batch) -> jax.Array:
    scores, is_document = interaction.own_scores(vectors), batch["document_numbers"] >= 0
    return losses.margin_mse(scores, batch["scores"], is_document)


def _kl_divergence(
    interaction: Interaction, vectors: RankedVectors, batch: Batch, *, temperature: float
) -> jax.Array:
    scores, is_document = interaction.own_scores(vectors), batch["document_numbers"] >= 0
    return losses.kl_divergence(scores, batch["scores"], is_document, temperature)


def _triplet(
    interaction: Interaction, vectors: RankedVectors, batch: Batch, *, margin: float
) -> jax.Array:
    scores, is_document = interaction.own_scores(vectors), batch["document_numbers"] >= 0
    return losses.triplet(scores, is_document, margin)


def _contrastive(
    interaction: Interaction, vectors: RankedVectors, batch: Batch, *, margin: float
) -> jax.Array:
    scores, grades = interaction.own_scores(vectors), batch["grades"]
    return losses.contrastive(scores, (grades > 0).astype(jnp.float32), margin)[:, 0]


def _cosent(
    interaction: Interaction, vectors: RankedVectors, batch: Batch, *, scale: float
) -> jax.Array:
    """One value for the whole batch, so that the mean over its rows is this value."""
    scores = scale * interaction.own_scores(vectors)[:, 0]
    value = losses.cosent(scores, batch["grades"][:, 0], batch["weights"] > 0)
    return jnp.full(len(scores), value)
