"""Files of HDF5, read by h5py: data sets by their path, such as "CNN/W_cnn_0"."""

from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.checkpoints.tensors.tensor_file import LFS_POINTER, TensorFile, TensorInfo
from bert_jax.errors import UserError, first_line
from bert_jax.files import open_regular

_REMEDY = "copy or download it again"


class HDF5File(TensorFile):
    """The data sets of a file with numbers; only one is in memory at a time."""

    def __init__(self, path: Path) -> None:
        """Opens a file.

        Raises:
            UserError: it is missing or damaged, or h5py is not installed.
        """
        self.path = path
        try:
            import h5py
        except ModuleNotFoundError as error:
            raise UserError(
                f"{path}: HDF5 needs the package h5py, which is not installed; install it "
                "(pip install h5py), or convert on a machine that has it"
            ) from error
        with open_regular(path, remedy=_REMEDY) as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                raise UserError(
                    f"{path} is only Git LFS's pointer to the weights; run `git lfs pull` in its "
                    "directory"
                )
        self.tensors: dict[str, TensorInfo] = {}

        def note(name: str, entry: Any) -> None:
            if isinstance(entry, h5py.Dataset):
                self.tensors[name] = TensorInfo(tuple(entry.shape or ()), entry.dtype)

        try:
            self._file = h5py.File(path, "r")
            self._file.visititems(note)
        except (OSError, RuntimeError, TypeError) as error:
            raise self._damaged(error) from error

    def read(self, name: str) -> np.ndarray:
        """A copy of the data set; no file is mapped here."""
        try:
            tensor: np.ndarray = self._file[name][()]
        except (OSError, RuntimeError, KeyError, TypeError) as error:
            raise self._damaged(error) from error
        tensor.flags.writeable = False
        return tensor

    def close(self) -> None:
        self._file.close()

    def _damaged(self, error: Exception) -> UserError:
        return UserError(f"{self.path} cannot be read: {first_line(error)}; {_REMEDY}")
