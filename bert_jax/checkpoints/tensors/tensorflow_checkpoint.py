"""Checkpoints of TensorFlow: `PREFIX.index` and `PREFIX.data-00000-of-00001`.

TensorFlow reads and writes them itself; the names are those of its variables.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.checkpoints.tensors.tensor_file import TensorFile, TensorInfo
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.errors import UserError


class TensorflowCheckpoint(TensorFile):
    """The variables of a checkpoint, with checksums; one of them is in memory at a time."""

    def __init__(self, prefix: Path) -> None:
        """Opens a checkpoint.

        Args:
            prefix: its files without their endings, as `bert_model.ckpt`.

        Raises:
            UserError: a file is missing or damaged, or TensorFlow is not installed.
        """
        if set("*?[\\") & set(str(prefix)):
            raise UserError(
                f"{prefix}: TensorFlow takes *, ?, [ and \\ in a path for wildcards; rename it"
            )
        tensorflow = _tensorflow(prefix)
        self.path = prefix
        # Its reader raises its own exceptions, and whatever the binding makes of the others.
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
        """See `TensorFile.read`; never a view."""
        try:
            tensor = np.asarray(self._reader.get_tensor(name))
        except self._errors as error:
            raise self._damaged(error) from error
        tensor.flags.writeable = False
        return tensor

    def close(self) -> None:
        self._reader = None

    def _damaged(self, error: Exception) -> UserError:
        return UserError(
            f"{self.path} cannot be read: {_reason(error)}; copy its .index file and all its "
            ".data-… files again"
        )


def write_checkpoint(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint that TensorFlow 1 and 2 restore by name.

    Args:
        prefix: `.index` and `.data-00000-of-00001` are appended; its directory must exist.
        tensors: name and value of every variable.

    Raises:
        UserError: it cannot be written, or TensorFlow is not installed.
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
    """TensorFlow, or a line for those machines that are better off without it."""
    try:
        return import_tensorflow()
    except ModuleNotFoundError as error:
        raise UserError(
            f"{prefix}: checkpoints of TensorFlow need the package {error.name}, which is not "
            "installed; install tensorflow-cpu, or convert on a machine that has it"
        ) from error


def _reason(error: Exception) -> str:
    """The first line of an error, without the operation that it came from."""
    return str(error).splitlines()[0].rpartition("}} ")[2].removesuffix(" [Op:SaveV2]")
