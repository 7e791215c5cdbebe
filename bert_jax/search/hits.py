"""What a search returns, and what every searcher has in common."""

import dataclasses
from typing import Any, Protocol

import numpy as np

Ranked = tuple[np.ndarray, np.ndarray]
"""Scores, float32 [B, k], and numbers of documents, int64 [B, k], of B queries.

Each row is sorted by score, the highest first, and equal scores by number, the lowest first. Where
a searcher finds fewer than k documents, the row ends with the score -inf and the number -1.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Hit:
    """A document that was retrieved.

    Attributes:
        id: its id in the collection.
        score: its score; a higher one is better.
        text: its text; None if the index stores no texts.
        title: its title; "": it has none, or the index stores no texts.
        document: of a passage, the id of the document that it is a part of; else "".
        start: first character of a passage in the text of that document.
    """

    id: str
    score: float
    text: str | None = None
    title: str = ""
    document: str = ""
    start: int = 0


class Searcher(Protocol):
    """Finds documents of a collection, which it knows by their numbers 0, 1, …, n - 1."""

    def search(self, queries: Any, top_k: int) -> Ranked:
        """The `top_k` best documents of each query.

        Args:
            queries: B queries of the searcher's kind: vectors float32 [B, X], sparse vectors, or
                strings.
            top_k: number of documents, k.
        """
