"""Opens labelled records: from a file, stdin, or a data set prepared by TensorFlow Datasets."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bert_jax.data.readers.rows import Report, TableShape
from bert_jax.data.readers.tables import FileOptions, Record, Table, open_table
from bert_jax.data.tensorflow import PreparedDataset
from bert_jax.errors import UserError

PREFIX = "tfds:"


def is_dataset(source: str | Path) -> bool:
    """Whether a source is "tfds:…", a prepared data set."""
    return str(source).startswith(PREFIX)


def open_records(
    source: str | Path,
    options: FileOptions,
    report: Report = TableShape.say,
    *,
    default: str = "",
    headless: tuple[str, ...] = (),
    skip_broken: bool = False,
) -> AbstractContextManager[Table]:
    """Opens a file, see `tables.open_table`, or "tfds:…", see `open_dataset`.

    Raises:
        UserError: the source cannot be opened.
    """
    if is_dataset(source):
        return open_dataset(str(source), options.data_dir)
    return open_table(
        source, options, report, default=default, headless=headless, skip_broken=skip_broken
    )


@contextlib.contextmanager
def open_dataset(source: str, data_dir: str | None = None) -> Iterator[Table]:
    """The examples of a split as records; nothing is downloaded. Imports TensorFlow.

    Features are columns. Bytes become text, and the numbers of a `ClassLabel` the names of its
    classes (-1, the number of unlabelled test examples, becomes None); lists and dicts stay.

    Args:
        source: "tfds:NAME[/CONFIG][:VERSION][:SPLIT]"; by default the newest version, and "train".
        data_dir: directory of prepared data sets; None for the default of TensorFlow Datasets.

    Raises:
        UserError: the data set or split does not exist; or, during iteration, a text is not UTF-8
            or a file is damaged.
    """
    dataset = PreparedDataset(repr(source), source.removeprefix(PREFIX), data_dir)
    columns = tuple(sorted(dataset.features))
    count, done = dataset.count, 0

    def records() -> Iterator[Record]:
        nonlocal done
        for example in dataset.examples():
            done += 1
            location = f"{source} example {done}"
            yield Record(_plain(example, dataset.features, location), location, columns)

    yield Table(records(), columns, source, fraction=lambda: done / count if count else None)


def _plain(value: Any, feature: Any, location: str) -> Any:
    """The value of a feature as plain Python types instead of NumPy's."""
    feature = getattr(feature, "feature", feature)  # of the elements of a sequence
    if isinstance(value, dict):
        return {name: _plain(part, feature[name], location) for name, part in value.items()}
    if hasattr(value, "to_list"):  # a ragged tensor
        value = value.to_list()
    elif hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(part, feature, location) for part in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{location}: byte {error.start + 1} of a text (0x{value[error.start]:02x}) is not "
                "UTF-8; prepare the data set with text that is"
            ) from error
    if hasattr(feature, "int2str"):  # a class
        return None if value == -1 else feature.int2str(value)
    return value
