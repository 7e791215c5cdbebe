"""`tfds:NAME[/CONFIG][:VERSION][:SPLIT]`: text that TensorFlow Datasets has prepared on disk.

The prepared files are read, never the code that made them: nothing is downloaded, and a data set
whose code is not installed can be read too.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from bert_jax.data.sources.files import decode
from bert_jax.data.sources.source import Block, Source, SourceSpec, document_blocks
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError

_VERSION = re.compile(r"\d+\.\d+\.\d+")


def open_source(spec: SourceSpec, place: str) -> "TensorFlowDataset":
    """Finds the prepared data set; called by `bert_jax.data.sources.open_source`."""
    name, _, split = place.partition(":")
    version, _, after = split.partition(":")
    if _VERSION.fullmatch(version):
        split = after
    else:
        version = ""
    if not name:
        raise UserError(
            f"data.source: {spec.source!r} is not of the form tfds:NAME[/CONFIG][:VERSION][:SPLIT]"
        )
    return TensorFlowDataset(spec, _find_version(spec, name, version), split or "train")


def _find_version(spec: SourceSpec, name: str, version: str) -> Path:
    default = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    data_dir = Path(spec.data_dir or default).expanduser()
    prepared = {path.parent for path in data_dir.glob(f"{name}/*/dataset_info.json")}
    versions = {path.name: path for path in prepared if _VERSION.fullmatch(path.name)}
    if versions and not version:
        version = max(versions, key=lambda text: [int(part) for part in text.split(".")])
    if version not in versions:
        there = sorted(
            str(path.parent.relative_to(data_dir)) for path in data_dir.rglob("dataset_info.json")
        )
        raise UserError(
            f"data.source: {spec.source!r}: TensorFlow Datasets has prepared no such data set in "
            f"{data_dir}; there: {', '.join(there) or 'nothing'}; prepare it with `tfds build`, or "
            "set data.data_dir"
        )
    return versions[version]


class TensorFlowDataset(Source):
    """One split of a prepared data set; a document per example, in the order on disk."""

    def __init__(self, spec: SourceSpec, directory: Path, split: str):
        self._directory = directory
        self._split = split
        self._states = {path.name: path.stat() for path in sorted(directory.iterdir())}
        super().__init__(spec, sum(state.st_size for state in self._states.values()))

    def identity(self) -> dict[str, object]:
        """Name, size and modification time (ns) of every file, and the split."""
        return {
            "directory": str(self._directory),
            "split": self._split,
            "files": [[name, st.st_size, st.st_mtime_ns] for name, st in self._states.items()],
        }

    def blocks(self) -> Iterator[Block]:
        """See `Source.blocks`. Imports TensorFlow."""
        tensorflow = import_tensorflow()
        import tensorflow_datasets

        builder = tensorflow_datasets.builder_from_directory(self._directory)
        splits = builder.info.splits
        self._check_field(sorted(builder.info.features))
        try:
            count = splits[self._split].num_examples
        except (KeyError, ValueError) as error:
            raise UserError(
                f"data.source: {self.spec.source!r} has no split {self._split!r}; "
                f"known: {', '.join(sorted(splits))}"
            ) from error
        try:
            for number, value in enumerate(self._values(builder), start=1):
                yield from document_blocks(self._text(value, number), self.spec.paragraphs)
                self.position = self.size * number // count
        except tensorflow.errors.OpError as error:
            raise UserError(
                f"data.source: {self.spec.source!r}: damaged files in {self._directory}: "
                f"{error.message}; prepare the data set anew"
            ) from error

    def _values(self, builder: Any) -> Iterator[object]:
        """The field of each example, from either kind of file."""
        import tensorflow_datasets

        field = self.spec.field
        if builder.info.file_format == tensorflow_datasets.core.FileFormat.ARRAY_RECORD:
            return (example[field] for example in builder.as_data_source(split=self._split))
        # One file after the other; more at a time would mix their examples.
        options = tensorflow_datasets.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        dataset = builder.as_dataset(split=self._split, read_config=options)
        return cast(Iterator[object], dataset.map(lambda e: e[field]).as_numpy_iterator())

    def _check_field(self, fields: list[str]) -> None:
        if self.spec.field not in fields:
            raise UserError(
                f"data.source: {self.spec.source!r} has no field {self.spec.field!r}; fields "
                f"there: {', '.join(fields)}; set data.field to one of them"
            )

    def _text(self, value: object, number: int) -> str:
        """The text of a string, or of a list of strings: a paragraph each."""
        parts = value.tolist() if isinstance(value, np.ndarray) else [value]
        lines = [part for part in parts if isinstance(part, bytes)]
        if len(lines) < len(parts):
            raise UserError(
                f"data.source: {self.spec.source!r}: field {self.spec.field!r} holds no text; "
                "set data.field to one that does"
            )
        return decode(b"\n".join(lines), self.spec.errors, f"{self.spec.source} example", number)
