"""From the scores of words to their tags: each word by itself, or the best path of a chain."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.padding import bucket_length, bucket_rows
from bert_jax.metrics.entities import detect_scheme
from bert_jax.models.crf import IMPOSSIBLE, CRFParams, marginals, viterbi
from bert_jax.tasks.base.predictor import softmax

Item = TypeVar("Item")

# Of sentences that go through the chain together.
_ROWS = 64
_WORDS = 1 << 14


class Decoded(NamedTuple):
    """Tags of W words.

    Attributes:
        tags: numbers of labels, int [W].
        scores: the probability of each of these tags, float [W].
    """

    tags: np.ndarray
    scores: np.ndarray


def argmax_decode(
    scored: Iterable[tuple[Item, np.ndarray]],
) -> Iterator[tuple[Item, Decoded]]:
    """The most probable tag of each word.

    Args:
        scored: things with the scores of their words, float32 [W, C].
    """
    for item, scores in scored:
        tags = scores.argmax(axis=-1)
        best = np.take_along_axis(softmax(scores), tags[:, None], axis=-1)[:, 0]
        yield item, Decoded(tags, best)


def viterbi_decode(
    scored: Iterable[tuple[Item, np.ndarray]], chain: CRFParams
) -> Iterator[tuple[Item, Decoded]]:
    """The most probable tags of each sentence as a whole; the scores are those over all paths.

    Sentences go through the chain in groups, in their order; nothing else is kept.

    Args:
        scored: things with the scores of their words, float32 [W, C].
        chain: the scores of neighbours.
    """
    for group in _groups(scored):
        longest = max(len(scores) for _, scores in group)
        rows, words = bucket_rows(len(group), _ROWS, 1), bucket_length(max(longest, 1), 1 << 30)
        emissions = np.zeros((rows, words, len(chain.start)), np.float32)
        mask = np.zeros((rows, words), bool)
        for row, (_, scores) in enumerate(group):
            emissions[row, : len(scores)] = scores
            mask[row, : len(scores)] = True
        tags, probabilities = jax.device_get(_decode(emissions, mask, chain))
        for row, (item, scores) in enumerate(group):
            length = len(scores)
            yield item, Decoded(tags[row, :length], probabilities[row, :length])


def possible(chain: CRFParams, labels: Sequence[str]) -> CRFParams:
    """The chain without steps that make no sense among tags of IOB2 or BIOES.

    Such as from O to I-PER. Training has little to say of what it has never seen; so it is left to
    the scheme. Tags of no scheme may follow each other as they like.
    """
    if detect_scheme([labels]) is None:
        return chain
    closed = any(label.startswith(("E-", "S-")) for label in labels)

    def forbidden(before: str, after: str) -> float:
        return 0.0 if _may_follow(before, after, closed=closed) else IMPOSSIBLE

    transitions = [[forbidden(before, after) for after in labels] for before in labels]
    start = [forbidden("O", label) for label in labels]
    end = [forbidden(label, "O") for label in labels]
    steps = CRFParams(*(jnp.array(scores) for scores in (transitions, start, end)))
    return jax.tree.map(jnp.add, chain, steps)


def _may_follow(before: str, after: str, *, closed: bool) -> bool:
    """Whether a tag may stand after another; `closed`: entities have tags of their own to end."""
    (first, _, type_before), (second, _, type_after) = before.partition("-"), after.partition("-")
    if second in ("I", "E"):
        return first in ("B", "I") and type_before == type_after
    return not (closed and first in ("B", "I"))


def _groups(
    scored: Iterable[tuple[Item, np.ndarray]],
) -> Iterator[list[tuple[Item, np.ndarray]]]:
    group: list[tuple[Item, np.ndarray]] = []
    longest = 0
    for item, scores in scored:
        longest = max(longest, len(scores))
        if group and (len(group) == _ROWS or longest * (len(group) + 1) > _WORDS):
            yield group
            group, longest = [], len(scores)
        group.append((item, scores))
    if group:
        yield group


@jax.jit
def _decode(emissions: Any, mask: Any, chain: CRFParams) -> tuple[jax.Array, jax.Array]:
    """float32 [B, W, C] → tags, int32 [B, W], and their probabilities, float32 [B, W]."""
    tags = viterbi(emissions, mask, chain)
    chances = marginals(emissions, mask, chain)
    return tags, jnp.take_along_axis(chances, tags[..., None], axis=-1)[..., 0]
