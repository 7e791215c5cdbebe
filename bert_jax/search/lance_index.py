"""The vectors of an index in LanceDB, on the disk or in a bucket, for more than fits in memory.

https://lancedb.github.io/lancedb/; buckets are reached with its own client, see its documentation
on credentials. The table has the columns "number" and "vector"; `index.json` has its version.
"""

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.errors import OptionError, UserError, first_line
from bert_jax.files import is_there
from bert_jax.search.hits import Ranked
from bert_jax.search.vector_files import VectorFiles

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "lance"

_TABLE = "vectors"
# Vectors that are compared by the cosine have length 1.
_DISTANCES = {"cosine": "dot", "dot": "dot", "euclidean": "l2"}
# The fewest vectors of which a product quantisation can be learned; fewer are all compared.
_FEWEST = 256
# A search reads the vectors of so many times `top_k` candidates, and compares them exactly.
_REFINE = 10
_NPROBES = 20


def check(similarity: str) -> None:
    """Checks that a table can be made.

    Raises:
        UserError: LanceDB is not installed.
        OptionError: it does not support the similarity.
    """
    _import()
    if similarity not in _DISTANCES:
        rule = f"LanceDB supports {', '.join(_DISTANCES)}; choose one, or leave out LanceDB"
        raise OptionError("similarity", similarity, rule)


def write(files: VectorFiles, option: str) -> str:
    """Writes a table of all vectors with an IVF-PQ index, in constant memory.

    Vectors are added to the table that is there.

    Returns:
        The version of the table.

    Raises:
        UserError: it is not as written.
    """
    folder = files.directory / FOLDER / f"{_TABLE}.lance"
    if "lance" in files.contents.outputs and is_there(folder):
        table = _at_version(files)
        first = table.count_rows()
        if first == files.contents.count:
            return files.contents.outputs["lance"]
        table.restore()  # without what was written after it by a process that was killed
        table.add(_reader(files, first))
        table.optimize()
    else:
        table = _connect(files).create_table(_TABLE, _reader(files, 0), mode="overwrite")
    if files.contents.count >= _FEWEST and not table.list_indices():
        from lancedb.index import IvfPq

        distance: Any = _DISTANCES[files.contents.settings["similarity"]]
        table.create_index("vector", config=IvfPq(distance_type=distance))
    return str(table.version)


class LanceSearcher:
    """Finds vectors by a table of LanceDB; only what a search needs is read."""

    def __init__(self, files: VectorFiles, parameters: str = "") -> None:
        """Opens the table.

        Args:
            files: files with a table of LanceDB.
            parameters: "nprobes=32": number of parts of the IVF-PQ index that are searched.

        Raises:
            OptionError: there are other parameters.
            UserError: LanceDB is not installed, or the table is not there.
        """
        match = re.fullmatch(r"nprobes=([1-9]\d*)|", parameters)
        if match is None:
            rule = "LanceDB has nprobes=N, the number of parts that are searched"
            raise OptionError("searcher", f"lance:{parameters}", rule)
        self._nprobes = int(match[1] or _NPROBES)
        self._table = _at_version(files)
        self._similarity = files.contents.settings["similarity"]

    def search(self, queries: np.ndarray, top_k: int) -> Ranked:
        """The nearest vectors; see `search.hits.Searcher`."""
        scores = np.full((len(queries), top_k), -np.inf, np.float32)
        numbers = np.full((len(queries), top_k), -1, np.int64)
        for row, query in enumerate(queries):
            nearest = (
                self._table.search(query, vector_column_name="vector")
                .distance_type(_DISTANCES[self._similarity])
                .nprobes(self._nprobes)
                .refine_factor(_REFINE)
                .limit(top_k)
                .select(["number", "_distance"])
                .to_arrow()
            )
            distances, count = nearest.column("_distance").to_numpy(), nearest.num_rows
            is_dot = _DISTANCES[self._similarity] == "dot"  # LanceDB returns 1 - the product
            scores[row, :count] = 1 - distances if is_dot else -np.sqrt(distances)  # or the square
            numbers[row, :count] = nearest.column("number").to_numpy()
        return scores, numbers


def _connect(files: VectorFiles) -> Any:
    return _import().connect(f"{files.directory}/{FOLDER}")


def _import() -> Any:
    os.environ.setdefault("LANCEDB_LOG", "error")  # read at import
    try:
        import lancedb
    except ImportError as error:
        raise UserError(
            "LanceDB needs the extra [lancedb]: pip install 'bert_jax[lancedb]'"
        ) from error
    return lancedb


def _at_version(files: VectorFiles) -> Any:
    """The table as `index.json` lists it."""
    database = _connect(files)
    try:
        table = database.open_table(_TABLE)
        table.checkout(int(files.contents.outputs["lance"]))
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"{files.directory}/{FOLDER} is not as written: {first_line(error)}; remove it, and "
            f"`bert-jax index --output {files.directory}` makes it again"
        ) from error
    return table


def _reader(files: VectorFiles, first: int) -> "pa.RecordBatchReader":
    """The numbers and vectors of the documents from number `first` on."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(files.contents.settings["dtype"])
    fields = [("number", pa.int64()), ("vector", pa.list_(kind, files.width))]
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        start = first
        for vectors in files.vectors(first):
            numbers = pa.array(np.arange(start, start + len(vectors)))
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), files.width)
            yield pa.RecordBatch.from_arrays([numbers, column], schema=schema)
            start += len(vectors)

    return pa.RecordBatchReader.from_batches(schema, batches())
