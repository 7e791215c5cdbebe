"""What every file of named tensors can do, whatever its format."""

import abc
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np


class TensorInfo(NamedTuple):
    """What is known of a tensor before it is read; `dtype` may be `ml_dtypes.bfloat16`."""

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
