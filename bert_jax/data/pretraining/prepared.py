"""Data sets that TensorFlow Datasets has prepared on disk: found, opened and read.

The prepared files are read, never the code that made them: nothing is downloaded, and a data set
whose code is not installed can be read too.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError

_VERSION = re.compile(r"\d+\.\d+\.\d+")


class PreparedDataset:
    """One split of a prepared data set; its examples come in the order on disk.

    What is read of it imports TensorFlow.

    Attributes:
        name: what it is called in errors.
        directory: where its files are.
        split: "train", "test[:100]", ….
    """

    def __init__(self, name: str, place: str, data_dir: str | None) -> None:
        """Finds the data set.

        Args:
            name: what it is called in errors.
            place: "NAME[/CONFIG][:VERSION][:SPLIT]"; the newest version, and "train", where it
                does not say.
            data_dir: where data sets are prepared; None for the default of TensorFlow Datasets.

        Raises:
            UserError: there is none at that place.
        """
        self.name = name
        found, _, split = place.partition(":")
        version, _, after = split.partition(":")
        if _VERSION.fullmatch(version):
            split = after
        else:
            version = ""
        if not found:
            raise UserError(f"{name} is not of the form tfds:NAME[/CONFIG][:VERSION][:SPLIT]")
        self.directory = self._find(found, version, data_dir)
        self.split = split or "train"

    @property
    def features(self) -> Mapping[str, Any]:
        """The fields of an example by name, as TensorFlow Datasets describes them."""
        features: Mapping[str, Any] = self._builder.info.features
        return features

    @property
    def count(self) -> int:
        """The number of examples.

        Raises:
            UserError: there is no such split.
        """
        splits = self._builder.info.splits
        try:
            return int(splits[self.split].num_examples)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"{self.name} has no split {self.split!r}; known: {', '.join(sorted(splits))}"
            ) from error

    def examples(self, field: str | None = None) -> Iterator[Any]:
        """Each example: a dict, or the value of one field, as NumPy arrays, numbers and bytes.

        Raises:
            UserError: a file is damaged.
        """
        tensorflow = import_tensorflow()
        import tensorflow_datasets

        try:
            if self._builder.info.file_format == tensorflow_datasets.core.FileFormat.ARRAY_RECORD:
                for example in self._builder.as_data_source(split=self.split):
                    yield example if field is None else example[field]
                return
            # One file after the other; more at a time would mix their examples.
            options = tensorflow_datasets.ReadConfig(interleave_cycle_length=1, try_autocache=False)
            dataset = self._builder.as_dataset(split=self.split, read_config=options)
            if field is not None:
                dataset = dataset.map(lambda example: example[field])
            yield from dataset.as_numpy_iterator()
        except tensorflow.errors.OpError as error:
            raise UserError(
                f"{self.name}: damaged files in {self.directory}: {error.message}; prepare the "
                "data set anew"
            ) from error

    @functools.cached_property
    def _builder(self) -> Any:
        import_tensorflow()
        import tensorflow_datasets

        return tensorflow_datasets.builder_from_directory(self.directory)

    def _find(self, name: str, version: str, data_dir: str | None) -> Path:
        default = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
        folder = Path(data_dir or default).expanduser()
        prepared = {path.parent for path in folder.glob(f"{name}/*/dataset_info.json")}
        versions = {path.name: path for path in prepared if _VERSION.fullmatch(path.name)}
        if versions and not version:
            version = max(versions, key=lambda text: [int(part) for part in text.split(".")])
        if version not in versions:
            there = sorted(
                str(path.parent.relative_to(folder)) for path in folder.rglob("dataset_info.json")
            )
            raise UserError(
                f"{self.name}: TensorFlow Datasets has prepared no such data set in {folder}; "
                f"there: {', '.join(there) or 'nothing'}; prepare it with `tfds build`, or set "
                "data.data_dir"
            )
        return versions[version]
