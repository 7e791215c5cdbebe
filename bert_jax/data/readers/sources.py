"""Where labelled records come from: a file, stdin, or a data set that TensorFlow has prepared."""

from contextlib import AbstractContextManager
from pathlib import Path

from bert_jax.data.readers import tfds
from bert_jax.data.readers.tables import Table, TableOptions, open_table


def is_dataset(source: str | Path) -> bool:
    """Whether it is "tfds:…", a prepared data set."""
    return str(source).startswith(tfds.PREFIX)


def open_records(
    source: str | Path, options: TableOptions, data_dir: str | None = None
) -> AbstractContextManager[Table]:
    """Opens a file, see `tables.open_table`, or "tfds:…", see `tfds.open_dataset`.

    Raises:
        UserError: it cannot be opened.
    """
    if is_dataset(source):
        return tfds.open_dataset(str(source), data_dir)
    return open_table(source, options)
