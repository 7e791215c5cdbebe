"""The interface of files of named tensors, and a shared implementation: views of a mapped file."""

import abc
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import open_regular

# Git writes this instead of a large file if its extension LFS is not installed.
LFS_POINTER = b"version https://git-lfs.github.com/"


class TensorInfo(NamedTuple):
    """Shape and dtype of a tensor, known before it is read; dtypes include `ml_dtypes.bfloat16`."""

    shape: tuple[int, ...]
    dtype: np.dtype


class TensorFile(abc.ABC):
    """Named tensors in one file, or in the shards of one model; a context manager.

    Attributes:
        path: path of the file for errors (for shards: of their index).
        tensors: shape and dtype of every tensor, by name.
    """

    path: Path
    tensors: Mapping[str, TensorInfo]

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """A tensor as stored: read-only, possibly a view of the mapped file.

        A view is valid until the file is closed. Memory pages of earlier reads are released, so a
        caller that copies each tensor before it reads the next holds only one of them at a time.

        Raises:
            UserError: the file is damaged.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the file; views become invalid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MappedTensorFile(TensorFile):
    """One file whose tensors are read-only views of its mapping; nothing is copied.

    Everything is checked at opening, from the metadata of the tensors only: no page of their data
    is read before `read`.

    Attributes:
        path: path of the file.
        tensors: shape and dtype of every tensor by name, in the order of the file.

    Raises:
        UserError: the file cannot be read, is damaged, or contains an entry that is not a tensor.
    """

    def __init__(self, path: Path):
        self.path = path
        self._map = _map(path)
        # Views of this array keep the mapping open while they are in use; an `np.ndarray` made of
        # the mapping itself does not.
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._views: dict[str, np.ndarray] = {}
        try:
            self._views = self._find_views()
        except (ValueError, UserError) as error:
            self.close()
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path} is damaged: {error}; copy or download it again") from error
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(view.shape, view.dtype) for name, view in self._views.items()
        }

    @abc.abstractmethod
    def _find_views(self) -> dict[str, np.ndarray]:
        """Makes a view for every tensor, with `_view`.

        Raises:
            UserError: the file is intact, but its content is not supported.
            ValueError: the file is damaged; the message says how.
        """

    def _view(
        self,
        offset: int,
        dtype: np.dtype,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
    ) -> np.ndarray:
        """A read-only array in the mapping, aligned or not; offset and strides are in bytes.

        Raises:
            ValueError: a part of the array is outside the file.
        """
        try:
            return np.ndarray(shape, dtype, self._bytes, offset, strides)
        except (TypeError, OverflowError) as error:
            raise ValueError(error) from error

    def read(self, name: str) -> np.ndarray:
        """A tensor as stored; see `TensorFile.read`."""
        self.give_back()
        return self._views[name].view()

    def give_back(self) -> None:
        """Releases the resident pages; views stay valid.

        Mapped pages count as memory of the process as long as they are resident. A view that is
        used again reloads them from the system's file cache.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Closes the mapping, or leaves it to the views that are still in use."""
        self._views, self._bytes = {}, np.empty(0, np.uint8)
        try:
            self._map.close()
        except BufferError:  # the last view closes it: closing it now would crash their users
            self.give_back()


def _map(path: Path) -> mmap.mmap:
    try:
        with open_regular(path, remedy="copy or download it again") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # raised by mmap for an empty file
        raise UserError(f"{path} is empty; copy or download it again") from error
    if mapping[: len(LFS_POINTER)] == LFS_POINTER:
        mapping.close()
        raise UserError(
            f"{path} is only Git LFS's pointer to the weights; run `git lfs pull` in its directory"
        )
    return mapping
