"""What every file of named tensors can do, and what the formats share: views of a mapped file."""

import abc
import mmap
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from bert_jax.errors import UserError

# Git writes this in place of a large file when its extension LFS is not installed.
LFS_POINTER = b"version https://git-lfs.github.com/"


class TensorInfo(NamedTuple):
    """Shape and dtype of a tensor, known before it is read; may be `ml_dtypes.bfloat16`."""

    shape: tuple[int, ...]
    dtype: np.dtype


class TensorFile(abc.ABC):
    """Named tensors in one file, or in the shards of one model; a context manager.

    Attributes:
        path: the file, to be named in errors (of shards: their index).
        tensors: every tensor's name, shape and dtype.
    """

    path: Path
    tensors: Mapping[str, TensorInfo]

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """A tensor as it is stored: read-only, perhaps a view of the mapped file.

        A view is good until the file is closed. The memory that earlier reads mapped is given back,
        so a caller that copies each tensor before it reads the next holds one of them at a time.

        Raises:
            UserError: the file is damaged.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends all views."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class MappedTensorFile(TensorFile):
    """One file whose tensors are read-only views of its mapping; nothing is copied.

    Everything is checked at opening, from the description of the tensors alone: no page of their
    data is touched before `read`.

    Attributes:
        path: the file.
        tensors: every tensor's name, shape and dtype, in the order in which the file names them.

    Raises:
        UserError: the file cannot be read, is damaged, or holds what is no tensor.
    """

    def __init__(self, path: Path):
        self.path = path
        self._map = _map(path)
        # Views are made of this array: it keeps the mapping from being closed while one is held,
        # which an `np.ndarray` made of the mapping itself does not.
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
        """A view for every tensor, by `_view`.

        Raises:
            UserError: the file is sound, but not one that can be read.
            ValueError: the file is damaged; says how.
        """

    def _view(
        self,
        offset: int,
        dtype: np.dtype,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
    ) -> np.ndarray:
        """An array in the mapping, read-only, aligned or not.

        Args:
            offset: its first byte, from the beginning of the file.
            dtype: of its elements.
            shape: any.
            strides: in bytes; rows are contiguous if None.

        Raises:
            ValueError: part of it is outside the file.
        """
        try:
            return np.ndarray(shape, dtype, self._bytes, offset, strides)
        except (TypeError, OverflowError) as error:
            raise ValueError(error) from error

    def read(self, name: str) -> np.ndarray:
        """A tensor as it is stored; see `TensorFile.read`."""
        self.give_back()
        return self._views[name].view()

    def give_back(self) -> None:
        """Ends the residence of the pages that reads touched; views stay good.

        Mapped pages count as memory of the process for as long as they are resident. A view that is
        used again gets them back from the system's cache of the file.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Ends the mapping, or leaves it to the views that are still held."""
        self._views, self._bytes = {}, np.empty(0, np.uint8)
        try:
            self._map.close()
        except BufferError:  # it ends with the last view: to unmap now would crash their users
            self.give_back()


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give a model directory") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # what mmap says of a file of no bytes
        raise UserError(f"{path} is empty; copy or download it again") from error
    if mapping[: len(LFS_POINTER)] == LFS_POINTER:
        mapping.close()
        raise UserError(
            f"{path} is only Git LFS's pointer to the weights; run `git lfs pull` in its directory"
        )
    return mapping
