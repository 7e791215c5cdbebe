"""Search by late interaction (ColBERT): MaxSim of a query with all documents, or with candidates.

The scores are exact. Candidates are the best documents by BM25, or those of the tokens that FAISS
finds for each token of the query (ColBERT, Khattab and Zaharia, 2020, https://arxiv.org/abs/2004.12832,
section 3.6). Of the latter, those are compared that are best by the similarities which were found;
a token that finds none of a document counts there with the least similarity that it has found
(XTR, Lee et al., 2023, https://arxiv.org/abs/2304.01982). On the disk:

    INDEX/maxsim/COUNT/
      vectors.bin       float16 or float32 [N, X], the vectors of all tokens, little-endian
      counts.npy        int64, the number of vectors of each document
"""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_jax.errors import OptionError
from bert_jax.files import atomic_directory, fetch
from bert_jax.metrics.similarity import joined_maxsim
from bert_jax.models.heads.token_vectors import MEAN_MAXSIM
from bert_jax.search.bm25 import WordSearcher
from bert_jax.search.faiss_index import FaissSearcher
from bert_jax.search.hits import Ranked
from bert_jax.search.vector_files import TokenArrays, VectorFiles

MAXSIM = "maxsim"

Query = tuple[str, np.ndarray]
"""The text of a query and the vectors of its tokens, float32 [T, X]."""

_VECTORS, _COUNTS = "vectors.bin", "counts.npy"
# Candidates of a query by default, as the paper's k.
_CANDIDATES = 1_000
# Vectors of documents that are compared at once: 67 MB of width 128.
_ROWS = 1 << 17

_FORM = re.compile(r"(?:(bm25|faiss)(?:=([1-9]\d*))?(?:,(.+))?)?")


def write(files: VectorFiles, option: str) -> str:
    """Writes the vectors of all tokens one after the other, in constant memory.

    Args:
        files: the shards.
        option: "", there are none.

    Returns:
        The name of the folder.
    """
    name = f"{MAXSIM}/{files.contents.count}"
    if not files.has(MAXSIM, name):
        with atomic_directory(files.directory / name, last=_COUNTS) as folder:
            counts = [np.empty(0, np.int64)]
            with (folder / _VECTORS).open("wb") as file:
                for tokens in files.vectors():
                    file.write(tokens.vectors.astype(_dtype(files)).tobytes())
                    counts.append(tokens.counts)
            np.save(folder / _COUNTS, np.concatenate(counts))
    return name


class MaxSimSearcher:
    """Finds documents by MaxSim; their vectors stay on the disk."""

    def __init__(self, files: VectorFiles, parameters: str = "") -> None:
        """Opens the vectors, and what finds candidates.

        Args:
            files: files with what `write` has written.
            parameters: "": each query is compared with all documents; "bm25=500" or "faiss=500":
                with so many candidates, or more if more hits are wanted; by default 1,000. FAISS
                finds them by as many tokens for each token of a query, and has its own parameters
                behind, as in "faiss=500,nprobe=32".

        Raises:
            OptionError: there are other parameters, or nothing that finds the candidates.
            UserError: see `VectorFiles.unreadable`.
        """
        match = _FORM.fullmatch(parameters)
        if match is None or (match[1] == "bm25" and match[3]):
            rule = "give maxsim, maxsim:bm25=1000, maxsim:faiss=1000 or maxsim:faiss=1000,nprobe=32"
            raise OptionError("searcher", f"{MAXSIM}:{parameters}", rule)
        first, count, rest = match[1], match[2], match[3] or ""
        if first and first not in files.contents.outputs:
            example = {"bm25": "--bm25", "faiss": "--faiss IVF1024,PQ32"}[first]
            rule = f"add it by `bert-jax index --output INDEX {example}`, or choose {MAXSIM}"
            problem = f"{files.directory} has no {first} to find candidates by"
            raise OptionError("searcher", f"{MAXSIM}:{parameters}", rule, problem)
        self._tokens = _opened(files)
        self._ends = self._tokens.ends
        self._is_there = np.full(len(self._ends), True)
        self._is_there[files.deleted] = False
        self._is_mean = files.contents.settings["similarity"] == MEAN_MAXSIM
        self._most, self._deleted = int(count or _CANDIDATES), len(files.deleted)
        self._first: Callable[[Sequence[Query], int], list[np.ndarray]] | None = None
        if first == "bm25":
            self._words = WordSearcher.load(files.directory / files.contents.outputs[first])
            self._first = self._by_words
        elif first:
            self._faiss = FaissSearcher(files, rest)
            self._first = self._by_tokens

    def search(self, queries: Sequence[Query], top_k: int) -> Ranked:
        """The best documents that are not deleted; see `search.hits.Searcher`."""
        count, documents = max(self._most, top_k), np.flatnonzero(self._is_there)
        if self._first is None or count >= len(documents):
            return self._best([vectors for _, vectors in queries], documents, top_k)
        found = [
            self._best([vectors], candidates, top_k)
            for (_, vectors), candidates in zip(queries, self._first(queries, count), strict=True)
        ]
        scores, numbers = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(numbers)

    def _best(self, queries: Sequence[np.ndarray], documents: np.ndarray, k: int) -> Ranked:
        """The k best of the documents with these ascending numbers, which all are compared."""
        scores = np.full((len(queries), k), -np.inf, np.float32)
        numbers = np.full((len(queries), k), -1, np.int64)
        for chosen, tokens in self._blocks(documents):
            more = joined_maxsim(queries, tokens.vectors, tokens.counts, mean=self._is_mean)
            scores = np.concatenate([scores, more], axis=1)
            numbers = np.concatenate([numbers, np.tile(chosen, (len(queries), 1))], axis=1)
            order = np.lexsort((numbers, -scores))[:, :k]
            scores = np.take_along_axis(scores, order, axis=1)
            numbers = np.take_along_axis(numbers, order, axis=1)
        return scores, numbers

    def _blocks(self, documents: np.ndarray) -> Iterator[tuple[np.ndarray, TokenArrays]]:
        """Some documents after the other, with their vectors as float32."""
        counts = self._tokens.counts[documents]
        (cuts,) = np.nonzero(np.diff(counts.cumsum() // _ROWS))
        for chosen in np.split(documents, cuts + 1):
            if not len(chosen):
                continue
            ends, counts = self._ends[chosen], self._tokens.counts[chosen]
            if chosen[-1] - chosen[0] < len(chosen):  # they are neighbours
                vectors = self._tokens.vectors[ends[0] - counts[0] : ends[-1]]
            else:
                parts = zip((ends - counts).tolist(), ends.tolist(), strict=True)
                vectors = np.concatenate([self._tokens.vectors[slice(*part)] for part in parts])
            yield chosen, TokenArrays(vectors.astype(np.float32, copy=False), counts)

    def _by_words(self, queries: Sequence[Query], count: int) -> list[np.ndarray]:
        """The best documents of each query by BM25, at least `count` if it finds so many."""
        _, numbers = self._words.search([text for text, _ in queries], count + self._deleted)
        return [np.sort(row[(row >= 0) & self._is_there[row]]) for row in numbers]

    def _by_tokens(self, queries: Sequence[Query], count: int) -> list[np.ndarray]:
        """Of the documents of the nearest tokens, the best `count` for each query."""
        return [self._nearest(vectors, count) for _, vectors in queries]

    def _nearest(self, query: np.ndarray, count: int) -> np.ndarray:
        scores, tokens = self._faiss.search(query, count)  # T × count
        numbers = np.searchsorted(self._ends, tokens, side="right")
        rows, columns = np.nonzero((tokens >= 0) & self._is_there[numbers])
        documents, places = np.unique(numbers[rows, columns], return_inverse=True)
        least = np.where(tokens >= 0, scores, np.inf).min(axis=1, keepdims=True)
        similarities = np.repeat(np.where(least < np.inf, least, 0), len(documents), axis=1)
        np.maximum.at(similarities, (rows, places), scores[rows, columns])
        order = np.argsort(-similarities.sum(axis=0), kind="stable")[:count]
        return np.sort(documents[order])


def _opened(files: VectorFiles) -> TokenArrays:
    name = files.contents.outputs[MAXSIM]
    try:
        folder = fetch(files.directory / name)
        counts = np.load(folder / _COUNTS)
        shape = int(counts.sum()), files.width
        vectors = np.memmap(folder / _VECTORS, _dtype(files), "r", shape=shape)
    except (OSError, ValueError, EOFError) as error:
        raise files.unreadable(name) from error
    return TokenArrays(vectors, counts)


def _dtype(files: VectorFiles) -> np.dtype:
    return np.dtype(files.contents.settings["dtype"]).newbyteorder("<")
