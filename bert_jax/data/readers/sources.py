"""Where labelled records come from: a file, stdin, or a data set that TensorFlow has prepared."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bert_jax.data.readers.tables import Record, Table, TableOptions, open_table
from bert_jax.data.tensorflow import PreparedDataset
from bert_jax.errors import UserError

PREFIX = "tfds:"


def is_dataset(source: str | Path) -> bool:
    """Whether it is "tfds:…", a prepared data set."""
    return str(source).startswith(PREFIX)


def open_records(
    source: str | Path, options: TableOptions, data_dir: str | None = None
) -> AbstractContextManager[Table]:
    """Opens a file, see `tables.open_table`, or "tfds:…", see `open_dataset`.

    Raises:
        UserError: it cannot be opened.
    """
    if is_dataset(source):
        return open_dataset(str(source), data_dir)
    return open_table(source, options)


@contextlib.contextmanager
def open_dataset(source: str, data_dir: str | None = None) -> Iterator[Table]:
    """The examples of a split as records; nothing is downloaded. Imports TensorFlow.

    Features are columns. Bytes become text and the numbers of a `ClassLabel` the names of its
    classes (-1, which data sets give to test examples, becomes None); lists and dicts stay such.

    Args:
        source: "tfds:NAME[/CONFIG][:VERSION][:SPLIT]"; by default the newest version, and "train".
        data_dir: where data sets are prepared; None for the default of TensorFlow Datasets.

    Raises:
        UserError: there is no such data set or split; or, while records are read, a text is not
            UTF-8 or a file is damaged.
    """
    dataset = PreparedDataset(repr(source), source.removeprefix(PREFIX), data_dir)
    columns = tuple(sorted(dataset.features))
    count, done = dataset.count, 0

    def records() -> Iterator[Record]:
        nonlocal done
        for example in dataset.examples():
            done += 1
            place = f"{source} example {done}"
            yield Record(_plain(example, dataset.features, place), place)

    yield Table(records(), columns, source, fraction=lambda: done / count if count else None)


def _plain(value: Any, feature: Any, place: str) -> Any:
    """A value of a feature without NumPy's types."""
    feature = getattr(feature, "feature", feature)  # of the elements of a sequence
    if isinstance(value, dict):
        return {name: _plain(part, feature[name], place) for name, part in value.items()}
    if hasattr(value, "to_list"):  # a ragged tensor
        value = value.to_list()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(part, feature, place) for part in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{place}: byte {error.start + 1} of a text (0x{value[error.start]:02x}) is not "
                "UTF-8; prepare the data set with text that is"
            ) from error
    if hasattr(feature, "int2str"):  # a class
        return None if value == -1 else feature.int2str(value)
    return value
