"""Exact search in random vectors, by bert_jax and by the flat index of FAISS.

Imported at the point of use, since each runs in an environment of its own.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.contender import Step

BLOCK = 50_000


def exact(options: argparse.Namespace) -> Step:
    """The collection lies in the memory of the device."""
    from bert_jax.search.exact import ExactSearcher

    return _searches(options, ExactSearcher(_vectors(options), similarity="dot").search)


def flat(options: argparse.Namespace) -> Step:
    """The collection lies in the index."""
    import faiss

    index = faiss.IndexFlatIP(options.width)
    for block in _vectors(options):
        index.add(block)
    return _searches(options, index.search)


def _vectors(options: argparse.Namespace) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    for start in range(0, options.vectors, BLOCK):
        count = min(BLOCK, options.vectors - start)
        yield random.standard_normal((count, options.width), np.float32)


def _searches(options: argparse.Namespace, search: Callable[[np.ndarray, int], Any]) -> Step:
    random = np.random.default_rng(1)

    def step(number: int) -> dict[str, int]:
        search(random.standard_normal((options.queries, options.width), np.float32), options.top_k)
        return {"queries": options.queries}

    return step
