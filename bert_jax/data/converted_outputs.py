"""JSON lines as files of other formats: JSON; NumPy, CSV, Parquet, when all lines are there."""

import contextlib
import csv
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bert_jax.data.outputs import Layout
from bert_jax.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP = 10_000  # rows of a row group

LINES = Layout()
"""A file of lines and nothing else."""
ARRAY = Layout(head="[\n", separator=",", tail="]\n", empty="[]\n")
"""Lines of JSON as one array."""
_LINES = ("", ".jsonl", ".ndjson")


def layout_of(
    target: str | Path, *, others: tuple[str, ...] = (), only_lines: bool = False
) -> Layout:
    """The file for lines of JSON that the ending of an output says: lines, an array, or a table.

    Args:
        target: the output; "-" for stdout has lines.
        others: endings of formats that are written otherwise, for the error.
        only_lines: whether other forms than lines are refused, of files that are read again.

    Raises:
        UserError: no format has this ending.
    """
    known = dict.fromkeys(_LINES, LINES)
    if not only_lines:
        known |= {".json": ARRAY, ".parquet": Layout(convert=to_parquet)}
    ending = Path(target).suffix.lower()
    if ending not in known:
        endings = ", ".join(filter(None, (*known, *others)))
        raise UserError(f"{target}: {ending} is no ending of this output; give {endings}")
    return known[ending]


def to_numpy(lines: Path, file: BinaryIO) -> None:
    """Lines of one vector each as an array, float32 [N, X]."""
    with lines.open("rb") as rows:
        count = sum(1 for _ in rows)
        rows.seek(0)
        width = len(json.loads(rows.readline() or "[]"))
        shape, kind = (count, width), np.dtype(np.float32).newbyteorder("<")
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        rows.seek(0)
        for row in rows:
            file.write(np.array(json.loads(row), kind).tobytes())


def vectors_to_csv(lines: Path, file: BinaryIO, key: str) -> None:
    """Lines of one object each as a CSV file in UTF-8 with a header.

    The numbers of the vector under `key` have a column each: KEY_0, KEY_1, … Other values that are
    no texts are JSON; a missing one is empty.

    Raises:
        UserError: a later row has a key that the first one lacks.
    """
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer, names = csv.writer(text, lineterminator="\n"), None
    with lines.open(encoding="utf-8") as rows:
        for number, row in enumerate(map(json.loads, rows), 1):
            vector = row.pop(key)
            if names is None:
                names = list(row)
                writer.writerow([*names, *(f"{key}_{index}" for index in range(len(vector)))])
            if others := [name for name in row if name not in names]:
                raise UserError(
                    f"prediction {number:,} has the column {others[0]!r}, which the first one "
                    "lacks; write JSON lines, as .jsonl, or choose with --keep-columns"
                )
            values = [row.get(name, "") for name in names]
            cells = [each if isinstance(each, str) else json.dumps(each) for each in values]
            writer.writerow([*cells, *vector])
    text.detach()


def to_parquet(lines: Path, file: BinaryIO) -> None:
    """Lines of one object each as a table with a column for each key; lists of floats are float32.

    Raises:
        UserError: the values of a key have several types, or the first rows lack a key.
    """
    import pyarrow.parquet as pq

    groups, start = _groups(lines), 0
    with contextlib.ExitStack() as stack:
        schema, writer = None, None
        for group in itertools.chain([next(groups, [])], groups):
            try:
                table = _table(group, schema)
            except (ValueError, TypeError, NotImplementedError) as error:  # pyarrow's are all these
                raise UserError(
                    f"predictions {start + 1:,} to {start + len(group):,} do not fit in a table: "
                    f"{error}; write JSON lines, as .jsonl"
                ) from error
            if writer is None:
                schema = table.schema
                writer = stack.enter_context(pq.ParquetWriter(file, schema))
            writer.write_table(table)
            start += len(group)


def _table(rows: list[dict[str, Any]], schema: "pa.Schema | None") -> "pa.Table":
    """Rows as a table, of this schema if there is one."""
    import pyarrow as pa

    names = dict.fromkeys(key for row in rows for key in row)
    if schema is not None:
        names = dict.fromkeys(schema.names) | names
    columns = {name: pa.array([row.get(name) for row in rows]) for name in names}
    table = pa.table(columns)
    kinds = [field.with_type(_narrow(field.type)) for field in table.schema]
    return table.cast(schema or pa.schema(kinds))


def _groups(lines: Path) -> Iterator[list[dict[str, Any]]]:
    with lines.open(encoding="utf-8") as rows:
        while group := [json.loads(row) for row in itertools.islice(rows, _GROUP)]:
            yield group


def _narrow(kind: "pa.DataType") -> "pa.DataType":
    """Numbers in lists are of arrays of float32."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.list_(
            pa.float32() if pa.types.is_float64(kind.value_type) else _narrow(kind.value_type)
        )
    return kind
