"""Checkpoints of TensorFlow: `PREFIX.index` and `PREFIX.data-00000-of-00001`.

TensorFlow itself reads and writes them; tensors have the names of its variables.
"""

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.checkpoints.tensors.tensor_file import TensorFile, TensorInfo
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError
from bert_jax.files import open_regular

_REMEDY = "copy its .index file and all its .data-… files again"


class TensorflowCheckpoint(TensorFile):
    """The variables of a checkpoint, with checksums; only one is in memory at a time."""

    def __init__(self, prefix: Path) -> None:
        """Opens a checkpoint.

        Args:
            prefix: path of its files without extensions, such as `bert_model.ckpt`.

        Raises:
            UserError: a file is missing or damaged, or TensorFlow is not installed.
        """
        if set("*?[\\") & set(str(prefix)):
            raise UserError(
                f"{prefix}: TensorFlow takes *, ?, [ and \\ in a path for wildcards; rename it"
            )
        data_files = sorted(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"))
        for path in (prefix.with_name(f"{prefix.name}.index"), *data_files):
            open_regular(path, remedy=_REMEDY).close()
        tensorflow = _tensorflow(prefix)
        self.path = prefix
        # Its reader raises its own exceptions, and further ones that its Python binding makes.
        self._errors = (tensorflow.errors.OpError, LookupError, RuntimeError, ValueError)
        try:
            self._reader = tensorflow.train.load_checkpoint(str(prefix))
            shapes = self._reader.get_variable_to_shape_map()
            dtypes = self._reader.get_variable_to_dtype_map()
        except self._errors as error:
            raise self._damaged(error) from error
        self.tensors = {
            name: TensorInfo(tuple(shapes[name]), np.dtype(dtypes[name].as_numpy_dtype))
            for name in sorted(shapes)
        }

    def read(self, name: str) -> np.ndarray:
        """A copy of the tensor; no file is mapped here."""
        try:
            tensor = np.asarray(self._reader.get_tensor(name))
        except self._errors as error:
            raise self._damaged(error) from error
        tensor.flags.writeable = False
        return tensor

    def close(self) -> None:
        self._reader = None

    def _damaged(self, error: Exception) -> UserError:
        return UserError(f"{self.path} cannot be read: {_reason(error)}; {_REMEDY}")


def write_checkpoint(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint that TensorFlow 1 and 2 restore by name.

    Args:
        prefix: `.index` and `.data-00000-of-00001` are appended; its directory must exist.
        tensors: values of the variables by name.

    Raises:
        UserError: the files cannot be written, or TensorFlow is not installed.
    """
    tensorflow = _tensorflow(prefix)
    names = sorted(tensors)  # the same variables give the same bytes
    try:
        tensorflow.raw_ops.SaveV2(
            prefix=str(prefix),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tensorflow.constant(tensors[name]) for name in names],
        )
    except tensorflow.errors.OpError as error:
        raise UserError(
            f"cannot write {prefix}: {_reason(error)}; free space or give another directory"
        ) from error


def _tensorflow(prefix: Path) -> Any:
    """Imports TensorFlow, or raises UserError if it is not installed."""
    try:
        return import_tensorflow()
    except ModuleNotFoundError as error:
        raise UserError(
            f"{prefix}: checkpoints of TensorFlow need the package {error.name}, which is not "
            "installed; install tensorflow-cpu, or convert on a machine that has it"
        ) from error


def _reason(error: Exception) -> str:
    """The first line of an error, without the name of the operation."""
    return str(error).splitlines()[0].rpartition("}} ")[2].removesuffix(" [Op:SaveV2]")
