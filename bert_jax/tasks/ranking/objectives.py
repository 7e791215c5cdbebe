"""The losses of a cross-encoder: functions of the scores of a query's documents.

"binary_cross_entropy": whether a document is relevant, each document alone; "cross_entropy": which
one of a positive and negatives is relevant; "margin_mse": a teacher's margin between a positive and
each negative; for the losses of the order of all documents see `base.listwise`.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from bert_jax.tasks.base import ranking_losses
from bert_jax.tasks.base.listwise import LIST_LOSSES, ListLoss
from bert_jax.tasks.base.ranking_rows import PER_DOCUMENT, PER_QUERY, RankingObjective

LOSSES = ("binary_cross_entropy", "cross_entropy", "margin_mse", *LIST_LOSSES)

Batch = Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Objective(RankingObjective):
    """A loss.

    Attributes:
        losses: scores float32 [B, K] and batch → the sum of the terms of each example, float32 [B].
        counts: batch → the number of terms of each example, [B].
        activation: the function of the score that the model's files store, a class of PyTorch.
    """

    losses: Callable[[jax.Array, Batch], jax.Array]
    counts: Callable[[Batch], jax.Array] = lambda batch: jnp.ones_like(batch["weights"])
    activation: str = "Identity"


def find_objective(name: str, positive_weight: float) -> Objective:
    """The loss of a name among `LOSSES`; for the weight see `binary_cross_entropy`."""
    match name:
        case "binary_cross_entropy":
            return Objective(
                lambda scores, batch: binary_cross_entropy(
                    scores[:, 0], batch["labels"][:, 0], positive_weight
                ),
                unit=PER_DOCUMENT,
                activation="Sigmoid",
            )
        case "cross_entropy":
            return Objective(
                lambda scores, batch: ranking_losses.cross_entropy(
                    scores, jnp.zeros(len(scores), jnp.int32), batch["exists"]
                ),
                least=2,
            )
        case "margin_mse":
            return Objective(
                lambda scores, batch: ranking_losses.margin_mse(
                    scores, batch["scores"], batch["exists"]
                ),
                least=2,
                needs_scores=True,
            )
    return _list_objective(LIST_LOSSES[name])


def _list_objective(loss: ListLoss) -> Objective:
    return Objective(
        lambda scores, batch: loss.losses(scores, batch["labels"], batch["exists"]),
        lambda batch: loss.count(batch["labels"], batch["exists"]),
        unit=PER_QUERY,
        least=2,
    )


def binary_cross_entropy(scores: jax.Array, grades: jax.Array, positive_weight: float) -> jax.Array:
    """-w g log sigmoid(s) - (1 - g) log sigmoid(-s) for a score s and a grade g, cut to 0 … 1.

    Args:
        scores: float32 [...].
        grades: float32 [...].
        positive_weight: w, the weight of a relevant document.
    """
    relevant = jnp.clip(grades, 0, 1)
    loss = -positive_weight * relevant * jax.nn.log_sigmoid(scores)
    return loss - (1 - relevant) * jax.nn.log_sigmoid(-scores)
