"""Exact search over sparse vectors, such as SPLADE's weights of words, by an inverted index.

For each of V words, the index has the numbers and weights of the documents with this word, so a
search reads only the words of the query. On the disk:

    DIRECTORY/
      postings.json     {"shape": [V, n]}
      data.npy          float32, the weights, word by word
      indices.npy       the number of the document of each
      indptr.npy        where the weights of each word begin, and where the last ones end
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bert_jax.errors import NotFiniteError, UserError, first_line, require_at_least
from bert_jax.files import atomic_directory, fetch, read_json_object
from bert_jax.search.hits import Ranked

_SHAPE = "postings.json"
_ARRAYS = ("data", "indices", "indptr")

# Queries that are compared at once: each has a score for each document with one of its words.
_QUERIES = 16

Row = tuple[Sequence[int] | np.ndarray, Sequence[float] | np.ndarray]
"""The numbers of words, int [n], and their weights, float [n]."""


def matrix(rows: Iterable[Row], width: int) -> Any:
    """Sparse vectors of the width V as the rows of a `scipy.sparse.csr_array`, float32 [n, V]."""
    from scipy.sparse import csr_array

    ids, weights = zip(*rows, strict=True) if (rows := list(rows)) else ((), ())
    ends = np.cumsum([0, *map(len, ids)])
    empty = np.empty(0, np.int32)
    data = np.concatenate([empty, *weights]).astype(np.float32)
    return csr_array((data, np.concatenate([empty, *ids]), ends), shape=(len(ids), width))


class SparseSearcher:
    """An inverted index; `len` is the number of documents."""

    def __init__(self, documents: Any) -> None:
        """Makes the index of documents.

        Args:
            documents: a sparse matrix of SciPy, [n, V], such as `matrix` makes.

        Raises:
            NotFiniteError: a weight is not finite; the message has the number of the document.
        """
        from scipy.sparse import coo_array, csr_array

        postings = csr_array(documents.T, dtype=np.float32)
        is_finite = np.isfinite(postings.data)
        if not is_finite.all():
            number = coo_array(postings).coords[1][is_finite.argmin()]
            raise NotFiniteError(f"document {number} has a weight that is not finite")
        self._postings = postings

    def __len__(self) -> int:
        return int(self._postings.shape[1])

    def search(self, queries: Any, top_k: int = 10) -> Ranked:
        """The documents with the greatest dot products, see `Ranked`; only those above 0.

        Args:
            queries: a sparse matrix of SciPy, [B, V].
            top_k: number of documents.

        Raises:
            UserError: the queries have another width.
        """
        require_at_least("top_k", top_k, 1)
        if queries.shape[1] != self._postings.shape[0]:
            raise UserError(
                f"the queries have {queries.shape[1]} words, the index {self._postings.shape[0]}: "
                "use the model that made the index"
            )
        scores = np.full((queries.shape[0], top_k), -np.inf, np.float32)
        numbers = np.full((queries.shape[0], top_k), -1, np.int64)
        queries = queries.tocsr().astype(np.float32)
        for start in range(0, queries.shape[0], _QUERIES):
            products = queries[start : start + _QUERIES] @ self._postings  # [B, n], sparse
            for row, (begin, end) in enumerate(itertools.pairwise(products.indptr), start):
                best = _best(products.data[begin:end], products.indices[begin:end], top_k)
                scores[row, : len(best[0])], numbers[row, : len(best[1])] = best
        return scores, numbers

    def save(self, directory: Path) -> None:
        """Writes the files; atomic."""
        with atomic_directory(directory, last=_SHAPE) as folder:
            for name in _ARRAYS:
                np.save(folder / f"{name}.npy", getattr(self._postings, name), allow_pickle=False)
            (folder / _SHAPE).write_text(json.dumps({"shape": self._postings.shape}) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Opens an index; its arrays stay on the disk.

        Raises:
            UserError: the files are missing or damaged.
        """
        from scipy.sparse import csr_array

        folder = fetch(directory)
        shape = read_json_object(folder / _SHAPE, remedy="make the index again").get("shape")
        searcher = cls.__new__(cls)
        try:
            arrays = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS)
            searcher._postings = csr_array(tuple(arrays), shape=shape)
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"{directory} is damaged: {first_line(error)}; make the index again"
            ) from error
        return searcher


def _best(scores: np.ndarray, numbers: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k greatest scores above 0, and their numbers; of equal ones the lowest numbers."""
    least = np.partition(scores, -k)[-k] if len(scores) > k else 0
    candidates = np.flatnonzero((scores >= least) & (scores > 0))
    order = candidates[np.lexsort((numbers[candidates], -scores[candidates]))][:k]
    return scores[order], numbers[order]
