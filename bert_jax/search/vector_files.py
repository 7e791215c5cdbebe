"""The files of an index: vectors, ids and texts of documents.

    DIRECTORY/
      vectors/00000.parquet …  id; title and text (if stored); document and start of a passage;
                               vector: a list of X float32 or float16, or of a sparse one "words"
                               and "weights", two lists; or of each token that counts "vectors"
      deleted/3.npy            int64, the sorted numbers of deleted documents
      faiss/Flat-20000.faiss   what `search.searchers` makes of them, also in bm25/, lance/,
                               sparse/, maxsim/
      index.json               everything that the vectors depend on, and which files count

The number of a document is its position in all shards, from 0. Each file is written once, as a
whole, and counts from the moment that `index.json` lists it; a shard contains the digest of its
documents. So a process that is killed at any point leaves an index that can be searched, or one
that the same command continues, and several hosts can each write their share of the shards.
`search.vector_writing` writes the files.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

import numpy as np

from bert_jax.errors import UserError, listed
from bert_jax.files import below, fetch, is_there, read_json_object, state_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

CONTENTS = "index.json"
DENSE, SPARSE, TOKENS = "dense", "sparse", "tokens"

KIND_NAMES = {DENSE: "vectors of texts", SPARSE: "sparse vectors", TOKENS: "vectors of tokens"}

VECTOR_COLUMNS = ("vector", "words", "weights", "vectors")

GROUP_ROWS = 1024
"""Rows of a shard that are read together for one text."""

_OPEN_SHARDS = 64


class TokenArrays(NamedTuple):
    """The vectors of the tokens of M texts, one text after the other.

    Attributes:
        vectors: float32 or float16 [N, X].
        counts: int64 [M], the number of vectors of each text; their sum is N.
    """

    vectors: np.ndarray
    counts: np.ndarray

    @classmethod
    def joined(cls, texts: Sequence[np.ndarray], width: int) -> Self:
        """Takes the vectors of each text, float32 [n, X]."""
        counts = np.array([len(each) for each in texts], np.int64)
        return cls(np.concatenate([np.empty((0, width), np.float32), *texts]), counts)

    @property
    def ends(self) -> np.ndarray:
        """Int64 [M], the number of the first vector behind each text."""
        return self.counts.cumsum()

    def split(self) -> list[np.ndarray]:
        """The vectors of each text."""
        return np.split(self.vectors, self.ends[:-1]) if len(self.counts) else []


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file of vectors.

    Attributes:
        name: name of the file.
        count: number of its documents.
        size: bytes of the file.
    """

    name: str
    count: int
    size: int


@dataclasses.dataclass(frozen=True)
class Contents:
    """What `index.json` says.

    Attributes:
        settings: everything that the vectors depend on, as values of JSON; with the "kind" of the
            vectors (`DENSE`, `SPARSE` or `TOKENS`), their "width", "dtype" and "similarity".
        paths: directories of the "model" and the "query_model"; "": made in memory.
        shards: the files of vectors, in the order of the documents.
        is_complete: whether all documents of the collection are in them.
        deleted: name of the file of deleted numbers; "": none are.
        options: name of each searcher that something is made for → its option.
        outputs: name of the searcher → the file or folder that it reads, of LanceDB the version.
    """

    settings: Mapping[str, Any]
    paths: Mapping[str, str]
    shards: tuple[Shard, ...] = ()
    is_complete: bool = False
    deleted: str = ""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of documents, deleted ones included."""
        return sum(shard.count for shard in self.shards)

    @property
    def names(self) -> set[str]:
        """The files and folders that count."""
        return {shard.name for shard in self.shards} | {self.deleted, *self.outputs.values()} - {""}


class VectorFiles:
    """The files of an index in a directory, local or in a bucket.

    Attributes:
        directory: the directory.
        contents: which files count.
    """

    def __init__(self, directory: Path, contents: Contents) -> None:
        self.directory, self.contents = directory, contents
        self._open = functools.lru_cache(_OPEN_SHARDS)(self._open_shard)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """A finished index.

        Raises:
            UserError: there is none, it is half-written, or a shard is missing or damaged.
        """
        contents = read_contents(directory)
        if contents is None:
            raise UserError(f"{directory} has no {CONTENTS}; make an index by `bert-jax index`")
        if not contents.is_complete:
            raise UserError(
                f"{directory} is half-written; repeat the `bert-jax index` that began it"
            )
        paths = {shard.name: directory / shard.name for shard in contents.shards}
        wrong = [
            shard.name
            for shard in contents.shards
            if not is_there(paths[shard.name]) or state_of(paths[shard.name]).size != shard.size
        ]
        if wrong:
            raise UserError(
                f"{directory}: {listed(wrong)} missing or not as written; copy the index again"
            )
        return cls(directory, contents)

    @property
    def width(self) -> int:
        """X of the vectors, V of sparse ones."""
        return int(self.contents.settings["width"])

    @functools.cached_property
    def deleted(self) -> np.ndarray:
        """int64, the sorted numbers of deleted documents."""
        if not self.contents.deleted:
            return np.empty(0, np.int64)
        try:
            numbers: np.ndarray = np.load(fetch(self.directory / self.contents.deleted))
        except (OSError, ValueError, EOFError) as error:
            raise self.unreadable(self.contents.deleted) from error
        return numbers

    def vectors(self, first: int = 0) -> Iterator[Any]:
        """The vectors of each shard, from the one with the document of number `first` on.

        Returns:
            Float32 or float16 [n, X], a sparse matrix of SciPy, float32 [n, V], or `TokenArrays`.

        Raises:
            UserError: a shard is damaged.
        """
        readers = {DENSE: self._array, SPARSE: self._matrix, TOKENS: self._tokens}
        read: Callable[[Shard], Any] = readers[self.contents.settings["kind"]]
        for shard, start in zip(self.contents.shards, self._starts, strict=False):
            if start >= first:
                yield read(shard)

    def strings(self, name: str) -> Iterator[list[str]]:
        """A column of strings, such as "id", by shard."""
        return (self._column(shard, name).to_pylist() for shard in self.contents.shards)

    def documents(self, numbers: Iterable[int]) -> dict[int, dict[str, Any]]:
        """What is stored of each document beside its vector, by the names of the columns."""
        starts = self._starts

        def shard_and_group(number: int) -> tuple[int, int]:
            shard = int(np.searchsorted(starts, number, side="right")) - 1
            return shard, int(number - starts[shard]) // GROUP_ROWS

        stored: dict[int, dict[str, Any]] = {}
        for (shard, group), members in itertools.groupby(sorted({*numbers}), shard_and_group):
            chosen = list(members)
            first = starts[shard] + group * GROUP_ROWS
            with self._reading(self.contents.shards[shard]):
                file = self._open(self.contents.shards[shard].name)
                columns = [name for name in file.schema_arrow.names if name not in VECTOR_COLUMNS]
                table = file.read_row_group(group, columns)
            table = table.take([each - first for each in chosen])
            stored |= zip(chosen, table.to_pylist(), strict=True)
        return stored

    def name_of(self, folder: str, option: str) -> str:
        """The name of what is made of all vectors with an option."""
        return f"{folder}/{quote(option, safe=',=')}-{self.contents.count}"

    def has(self, searcher: str, name: str) -> bool:
        """Whether a searcher reads the file or folder of this name, and it is there."""
        return self.contents.outputs.get(searcher) == name and is_there(self.directory / name)

    def unreadable(self, name: str) -> UserError:
        """The error of a listed file that cannot be read."""
        current = read_contents(self.directory)
        if current and current.is_complete and name not in current.names:  # then it was removed
            return UserError(f"{self.directory} has changed since it was opened; load it again")
        remedy = "copy the index again"
        if name in self.contents.outputs.values():
            remedy = f"remove it, and `bert-jax index --output {self.directory}` makes it again"
        return UserError(f"{self.directory / name} is missing or damaged; {remedy}")

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """int64, the number of the first document of each shard, and of all documents."""
        return np.cumsum([0, *(shard.count for shard in self.contents.shards)])

    def _array(self, shard: Shard) -> np.ndarray:
        column = self._column(shard, "vector")
        array: np.ndarray = column.flatten().to_numpy().reshape(-1, self.width)
        return array

    def _matrix(self, shard: Shard) -> Any:
        from scipy.sparse import csr_array

        words, weights = self._column(shard, "words"), self._column(shard, "weights")
        parts = weights.flatten().to_numpy(), words.flatten().to_numpy(), words.offsets.to_numpy()
        return csr_array(parts, shape=(shard.count, self.width))

    def _tokens(self, shard: Shard) -> TokenArrays:
        column = self._column(shard, "vectors")
        vectors = column.flatten().flatten().to_numpy().reshape(-1, self.width)
        return TokenArrays(vectors, np.diff(column.offsets.to_numpy()).astype(np.int64))

    def _column(self, shard: Shard, name: str) -> "pa.Array":
        # Not kept open: the pages of a file that is mapped count as memory of the process.
        with self._reading(shard), self._open_shard(shard.name) as file:
            return file.read([name]).column(name).combine_chunks()

    @contextlib.contextmanager
    def _reading(self, shard: Shard) -> Iterator[None]:
        """Raises UserError if reading fails."""
        try:
            yield
        except (OSError, ValueError) as error:  # pyarrow's errors are both
            raise self.unreadable(shard.name) from error

    def _open_shard(self, name: str) -> "pq.ParquetFile":
        import pyarrow.parquet as pq

        path = fetch(self.directory / name)
        return pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)


def read_contents(directory: Path) -> Contents | None:
    """What `index.json` says; None: there is none.

    Raises:
        UserError: it is damaged.
    """
    path = directory / CONTENTS
    if not is_there(path):
        return None
    try:
        fields = read_json_object(path)
        shards = tuple(Shard(**shard) for shard in fields.pop("shards"))
        contents = Contents(**fields, shards=shards)
        for name in contents.names:
            below(directory, name, path)
    except (LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged; copy the index again") from error
    return contents
