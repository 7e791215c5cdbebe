"""The vectors of an index as an index of FAISS: any that its factory makes.

https://github.com/facebookresearch/faiss/wiki/The-index-factory
"""

import contextlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert_jax.errors import OptionError
from bert_jax.files import atomic_directory, fetch
from bert_jax.search.vector_files import TOKENS, VectorFiles

FLAT = "Flat"
"""The factory of the index that compares a query with every vector."""

FOLDER = "faiss"

# The most vectors that an index is trained on; FAISS takes 256 for each cluster.
_MOST_TRAINED = 2**18


def check(factory: str, width: int, similarity: str) -> None:
    """Raises OptionError if FAISS does not know a factory for vectors of this width."""
    _make(factory, width, similarity)


def write(files: VectorFiles, factory: str) -> str:
    """Writes an index of all vectors, a flat one in constant memory; returns its name.

    Vectors are added to the index of the same factory that is there.

    Raises:
        OptionError: there are too few vectors to train it.
    """
    import faiss

    contents = files.contents
    name = f"{files.name_of(FOLDER, factory)}.faiss"
    if files.has("faiss", name):
        return name
    earlier = contents.outputs.get("faiss", "")
    with atomic_directory(files.directory / FOLDER) as folder:
        path = folder / Path(name).name
        if factory == FLAT:
            with path.open("wb") as file:
                _write_flat(file, files)
            return name
        if factory == contents.options.get("faiss") and files.has("faiss", earlier):
            index = _read(files)
        else:
            index = _make(factory, files.width, contents.settings["similarity"])
        rule = "the vectors are kept: the same command with another {faiss} goes on from them"
        with _explained("faiss", factory, rule):
            if not index.is_trained:
                index.train(_sample(files))
            for vectors in _rows(files, index.ntotal):
                index.add(np.ascontiguousarray(vectors, np.float32))
            faiss.write_index(index, str(path))
    return name


class FaissSearcher:
    """Finds vectors by an index of FAISS, which stays on the disk where FAISS can map it."""

    def __init__(self, files: VectorFiles, parameters: str = "") -> None:
        """Opens the index.

        Args:
            files: files with an index of FAISS.
            parameters: of the search, such as "nprobe=32" or "efSearch=64".

        Raises:
            OptionError: the index has no such parameters.
            UserError: see `VectorFiles.unreadable`.
        """
        import faiss

        self._index = _read(files, faiss.IO_FLAG_MMAP_IFC)
        if parameters:
            rule = "give a parameter of this index, such as faiss:nprobe=32 where it has IVF"
            with _explained("searcher", f"faiss:{parameters}", rule):
                space: Any = faiss.ParameterSpace()  # whose types are wrong
                space.set_index_parameters(self._index, parameters)
        self._similarity = files.contents.settings["similarity"]

    def search(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest vectors; see `search.hits.Searcher`."""
        scores, numbers = self._index.search(np.ascontiguousarray(queries), top_k)
        if self._similarity == "euclidean":
            scores = -np.sqrt(np.maximum(scores, 0))  # FAISS returns the squares
        elif self._similarity == "manhattan":
            scores = -scores
        return np.where(numbers < 0, -np.inf, scores), numbers


def _read(files: VectorFiles, flags: int = 0) -> Any:
    """The index of FAISS that `index.json` lists."""
    import faiss

    name = files.contents.outputs["faiss"]
    try:
        return faiss.read_index(str(fetch(files.directory / name)), flags)
    except RuntimeError as error:
        raise files.unreadable(name) from error


def _make(factory: str, width: int, similarity: str) -> Any:
    """An empty index of FAISS; vectors that are compared by the cosine have length 1."""
    import faiss

    metrics = {"euclidean": faiss.METRIC_L2, "manhattan": faiss.METRIC_L1}
    rule = "give what FAISS supports, and enough documents to train it"
    with _explained("faiss", factory, rule):
        return faiss.index_factory(
            width, factory, metrics.get(similarity, faiss.METRIC_INNER_PRODUCT)
        )


def _write_flat(file: BinaryIO, files: VectorFiles) -> None:
    """Writes what `faiss.write_index` writes (faiss/impl/index_write.cpp), vector by vector.

    Bytes 8-15 are the number of vectors, the last eight before the vectors that of their values.
    """
    import faiss

    empty = _make(FLAT, files.width, files.contents.settings["similarity"])
    header, count = faiss.serialize_index(empty).tobytes(), 0
    file.write(header)
    for vectors in _rows(files):
        file.write(np.ascontiguousarray(vectors, "<f4").data)
        count += len(vectors)
    file.seek(0)
    size = struct.pack("<Q", count * files.width)
    file.write(header[:8] + struct.pack("<q", count) + header[16:-8] + size)


def _rows(files: VectorFiles, first: int = 0) -> Iterator[np.ndarray]:
    """All vectors by shard, float32 or float16 [n, X], from the shard with vector `first` on."""
    if files.contents.settings["kind"] != TOKENS:
        yield from files.vectors(first)
        return
    start = 0
    for tokens in files.vectors():
        if start >= first:
            yield tokens.vectors
        start += len(tokens.vectors)


def _sample(files: VectorFiles) -> np.ndarray:
    """Vectors to train an index on, float32 [n, X]: evenly spread, the same in each call."""
    chosen: list[np.ndarray] = []
    start, step = 0, 1
    for vectors in _rows(files):
        chosen.append(vectors[-start % step :: step].astype(np.float32))
        start += len(vectors)
        while sum(map(len, chosen)) > _MOST_TRAINED:
            chosen, step = [np.concatenate(chosen)[::2]], 2 * step
    return np.concatenate(chosen)


@contextlib.contextmanager
def _explained(key: str, value: str, rule: str) -> Iterator[None]:
    """Turns an error of FAISS into an OptionError.

    Its text is "Error in FUNCTION at FILE: PROBLEM".
    """
    try:
        yield
    except RuntimeError as error:
        problem = re.sub(r"^Error in .*?\.cpp:\d+: ", "", str(error)).splitlines()[0]
        raise OptionError(key, value, rule, f"FAISS refuses {value!r}: {problem}") from error
