"""Reciprocal-rank fusion: one ranking of the results of several searchers or indexes.

Source: Cormack et al., 2009 (https://doi.org/10.1145/1571941.1572114).
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import require_at_least
from bert_jax.search.hits import Hit, Ranked

FUSED = 100
"""The fewest documents of each result that is fused."""

# The higher, the less the first ranks stand out.
_RANK_CONSTANT = 60


def reciprocal_rank_fusion(results: Sequence[Ranked], top_k: int) -> Ranked:
    """The best documents by the sum of 1 / (60 + rank) over several results.

    Ranks begin with 1. Scores of the results do not count, so they need not be comparable.

    Args:
        results: one for each searcher, for the same B queries and the same collection.
        top_k: number of documents.
    """
    require_at_least("top_k", top_k, 1)
    ranked = np.concatenate([numbers for _, numbers in results], axis=1)  # Bn
    ranks = np.concatenate([np.arange(1, numbers.shape[1] + 1) for _, numbers in results])
    addends = 1 / (_RANK_CONSTANT + ranks)
    scores = np.full((len(ranked), top_k), -np.inf, np.float32)
    numbers = np.full((len(ranked), top_k), -1, np.int64)
    for row, hits in enumerate(ranked):
        documents, columns = np.unique(hits[hits >= 0], return_inverse=True)
        # As float32, equal sums are equal in whatever order they were added.
        sums = np.bincount(columns, addends[hits >= 0], len(documents)).astype(np.float32)
        order = np.argsort(-sums, kind="stable")[:top_k]
        scores[row, : len(order)], numbers[row, : len(order)] = sums[order], documents[order]
    return scores, numbers


def fuse_hits(results: Sequence[Sequence[Sequence[Hit]]], top_k: int = 10) -> list[list[Hit]]:
    """The best documents of several indexes of one collection, see `reciprocal_rank_fusion`.

        fuse_hits([dense.search(queries, 100), sparse.search(queries, 100)])

    Args:
        results: for each index the hits of each query, as `Index.search` returns them.
        top_k: number of hits for each query.

    Returns:
        For each query its hits, with the fused score, and the text and title of the first index
        that has found the document.

    Raises:
        ValueError: the results are of different numbers of queries.
    """
    fused = []
    for lists in zip(*results, strict=True):
        hits: dict[str, Hit] = {}
        for hit in itertools.chain(*lists):
            hits.setdefault(hit.id, hit)
        documents = list(hits.values())
        numbers = {name: number for number, name in enumerate(hits)}
        ranked = [
            (np.zeros((1, len(each))), np.array([[numbers[hit.id] for hit in each]], np.int64))
            for each in lists
        ]
        scores, best = (row[0].tolist() for row in reciprocal_rank_fusion(ranked, top_k))
        pairs = zip(best, scores, strict=True)
        fused.append([dataclasses.replace(documents[n], score=s) for n, s in pairs if n >= 0])
    return fused
