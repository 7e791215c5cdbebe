"""The only module that imports TensorFlow (for tf.data and checkpoints) and TensorFlow Datasets."""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.errors import OptionError, UserError

_KERAS_2 = "TF_USE_LEGACY_KERAS"


def import_tensorflow() -> Any:
    """Imports TensorFlow without accelerators, which belong to JAX, and without log messages.

    It takes seconds, so it is called at the point of use.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # it prints a message
    # TensorFlow imports all of Keras 3, which takes seconds and is not used here, unless this
    # variable selects Keras 2. `tensorflow.keras` reads it again when it is first used.
    keras = os.environ.get(_KERAS_2)
    os.environ[_KERAS_2] = "1"
    try:
        import tensorflow
    finally:
        del os.environ[_KERAS_2]
        if keras is not None:
            os.environ[_KERAS_2] = keras

    for kind in ("GPU", "TPU"):
        tensorflow.config.set_visible_devices([], kind)
    return tensorflow


def import_keras() -> Any:
    """Imports Keras 3, which comes with TensorFlow, to compute by TensorFlow.

    Raises:
        UserError: the process has imported it before, to compute by another library.
    """
    import_tensorflow()
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    if keras.config.backend() != "tensorflow":
        raise UserError(
            f"Keras computes by {backend} in this process, and images are changed by TensorFlow; "
            "set KERAS_BACKEND=tensorflow"
        )
    return keras


_VERSION = re.compile(r"\d+\.\d+\.\d+")


class PreparedDataset:
    """One split of a data set that TensorFlow Datasets has prepared; examples are in disk order.

    Only the prepared files are read, never the code that made them: nothing is downloaded, and the
    code of the data set need not be installed. TensorFlow is imported when examples are read.

    Attributes:
        name: name of the data set in errors.
        directory: directory of its files.
        split: the split, such as "train" or "test[:100]".
    """

    def __init__(self, name: str, location: str, data_dir: str | None) -> None:
        """Finds the data set.

        Args:
            name: name of the data set in errors.
            location: "NAME[/CONFIG][:VERSION][:SPLIT]"; by default the newest version, and
                "train".
            data_dir: directory of prepared data sets; None for the default of TensorFlow Datasets.

        Raises:
            UserError: the data set does not exist.
        """
        self.name = name
        dataset, _, split = location.partition(":")
        version, _, after = split.partition(":")
        if _VERSION.fullmatch(version):
            split = after
        else:
            version = ""
        if not dataset:
            raise UserError(f"{name} is not of the form tfds:NAME[/CONFIG][:VERSION][:SPLIT]")
        self.directory = self._find(dataset, version, data_dir)
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
            UserError: the split does not exist.
        """
        splits = self._builder.info.splits
        try:
            return int(splits[self.split].num_examples)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"{self.name} has no split {self.split!r}; known: {', '.join(sorted(splits))}"
            ) from error

    def records(self, source: str) -> Iterator[tuple[dict[str, Any], str]]:
        """The examples in plain Python types, each with its location, "SOURCE example 1".

        Bytes become text, and the numbers of a `ClassLabel` the names of its classes (-1, the
        number of unlabelled test examples, becomes None); lists and dicts stay.

        Raises:
            UserError: a text is not UTF-8, or a file is damaged.
        """
        for number, example in enumerate(self.examples(), 1):
            location = f"{source} example {number}"
            yield _plain(example, self.features, location), location

    def examples(self, field: str | None = None, encoded: tuple[str, ...] = ()) -> Iterator[Any]:
        """The examples: each a dict, or the value of one field, as NumPy arrays, numbers and bytes.

        Args:
            field: the only field; None: all.
            encoded: features, such as images, whose bytes stay as they are stored.

        Raises:
            UserError: a file is damaged.
        """
        tensorflow = import_tensorflow()
        import tensorflow_datasets

        skip = tensorflow_datasets.decode.SkipDecoding
        decoders = {name: skip() for name in encoded} or None
        try:
            if self._builder.info.file_format == tensorflow_datasets.core.FileFormat.ARRAY_RECORD:
                for example in self._builder.as_data_source(split=self.split, decoders=decoders):
                    yield example if field is None else example[field]
                return
            # One file after the other; reading several at once would mix their examples.
            options = tensorflow_datasets.ReadConfig(interleave_cycle_length=1, try_autocache=False)
            dataset = self._builder.as_dataset(
                split=self.split, read_config=options, decoders=decoders
            )
            if field is not None:
                dataset = dataset.map(lambda example: example[field])
            yield from dataset.as_numpy_iterator()
        except tensorflow.errors.OpError as error:
            raise UserError(
                f"{self.name}: damaged files in {self.directory}: {error.message}; prepare the "
                "data set again"
            ) from error

    @functools.cached_property
    def _builder(self) -> Any:
        import_tensorflow()
        import tensorflow_datasets

        return tensorflow_datasets.builder_from_directory(self.directory)

    def _find(self, name: str, version: str, data_dir: str | None) -> Path:
        default = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
        folder = Path(os.path.expanduser(data_dir or default))
        prepared = {path.parent for path in folder.glob(f"{name}/*/dataset_info.json")}
        versions = {path.name: path for path in prepared if _VERSION.fullmatch(path.name)}
        if versions and not version:
            version = max(versions, key=lambda text: [int(part) for part in text.split(".")])
        if version not in versions:
            known = sorted(
                str(path.parent.relative_to(folder)) for path in folder.rglob("dataset_info.json")
            )
            raise OptionError(
                "data.data_dir",
                data_dir,
                "prepare it with `tfds build`, or set {data.data_dir}",
                problem=f"{self.name}: TensorFlow Datasets has prepared no such data set in "
                f"{folder}; it has {', '.join(known) or 'none'}",
            )
        return versions[version]


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
