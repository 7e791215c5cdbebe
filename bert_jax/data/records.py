"""Output files that are complete or do not exist, and records as JSON."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import atomic_file

STDOUT = "-"


class _ReaderGoneError(UserError):
    """The reader of a pipe has stopped, as after `| head`."""


class Output:
    """A text file that is being written.

    Attributes:
        target: its path; None for stdout and for what is not a regular file.
    """

    def __init__(self, name: str, stream: BinaryIO, target: Path | None) -> None:
        """Use `open_output`."""
        self.target = target
        self._name = name
        self._stream = stream

    def write(self, text: str) -> None:
        """Writes some text; on a pipe it is flushed at once.

        Raises:
            UserError: it cannot be written.
        """
        with _named_errors(self._name):
            self._stream.write(text.encode())
            if self.target is None:
                self._stream.flush()


@contextlib.contextmanager
def open_output(target: str | Path) -> Iterator[Output]:
    """Opens an output: a file that is complete or does not exist, or "-" for stdout.

    See `files.atomic_file`: after an error, an older file of the same name is as it was.

    Raises:
        UserError: it cannot be written.
    """
    if str(target) == STDOUT:
        with _quiet_exit():
            yield Output("stdout", sys.stdout.buffer, None)
        return
    path = Path(target)
    is_regular = path.is_file() or not path.exists()  # not /dev/null, nor a named pipe
    try:
        with atomic_file(path) as stream:
            yield Output(str(target), stream, path if is_regular else None)
    except BrokenPipeError as error:
        raise _ReaderGoneError(f"{target}: its reader has stopped reading") from error


def to_json(record: Mapping[str, Any]) -> str:
    """One object; a float32 becomes the shortest decimal that reads back as the same float32."""
    entries = (
        f"{json.dumps(key, ensure_ascii=False)}: "
        + (
            _array_to_json(key, value)
            if isinstance(value, np.ndarray)
            else json.dumps(value, ensure_ascii=False)
        )
        for key, value in record.items()
    )
    return "{" + ", ".join(entries) + "}"


def shortest(number: float) -> float:
    """A float32 as the double that Python prints like the float32: 0.1, not 0.10000000149011612."""
    return float(str(np.float32(number)))


def _array_to_json(key: str, values: np.ndarray) -> str:
    if not np.isfinite(values).all():
        raise UserError(f"{key!r} is not finite; the parameters of the model are damaged")

    def nested(part: np.ndarray) -> str:
        items = map(str, part) if part.ndim == 1 else map(nested, part)
        return "[" + ", ".join(items) + "]"

    return nested(values)


@contextlib.contextmanager
def _quiet_exit() -> Iterator[None]:
    """After the reader of stdout has stopped, lets Python flush to nowhere at its exit."""
    try:
        yield
    except _ReaderGoneError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise


@contextlib.contextmanager
def _named_errors(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGoneError(f"{name}: its reader has stopped reading") from error
    except OSError as error:
        raise UserError(
            f"cannot write {name}: {error.strerror}; free space or choose another place"
        ) from error
