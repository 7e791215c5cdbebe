"""Numbered lines of a file or of stdin: UTF-8, compressed or not."""

import contextlib
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bert_jax.data.readers.compressed import decompress, named_errors
from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch

STDIN = "-"
LINE_BYTES = 64 * 1024 * 1024
"""The longest line that is read; a longer one is hardly text."""

_CONVERT = "convert the file to UTF-8"


class Lines:
    """The lines of an input, read once.

    Attributes:
        name: what the input is called in errors.
    """

    def __init__(
        self,
        name: str,
        stream: BinaryIO,
        raw: io.FileIO | None = None,
        *,
        errors: str = "strict",
        remedy: str = _CONVERT,
    ) -> None:
        """See `open_lines`.

        Args:
            name: of the input.
            stream: buffered.
            raw: the file below the stream; None if it is no regular file, or nobody will ask for
                the `fraction`.
            errors: see `decode`.
            remedy: likewise.
        """
        self.name = name
        self._stream = stream
        self._errors, self._remedy = errors, remedy
        self._raw = raw
        self._size = os.fstat(raw.fileno()).st_size if raw is not None else 0
        self._is_compressed = raw is None or getattr(stream, "raw", None) is not raw
        self._bytes_read = 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Numbers from 1, and lines with their ends; a byte order mark is dropped.

        Raises:
            UserError: the input cannot be read, is damaged, or a line is not UTF-8 or too long.
        """
        number = 0
        with named_errors(self.name):
            while data := self._stream.readline(LINE_BYTES + 1):
                number += 1
                self._bytes_read += len(data)
                place = f"{self.name}:{number}"
                if len(data) > LINE_BYTES:
                    limit = f"{LINE_BYTES >> 20} MiB"
                    raise UserError(
                        f"{place}: the line is longer than the limit of {limit}; break it into "
                        "lines"
                    )
                line = decode(data, place, self._errors, self._remedy)
                yield number, line.removeprefix("\ufeff") if number == 1 else line

    def whole(self) -> str:
        """All that is left, of any length of line.

        Raises:
            UserError: the input cannot be read, is damaged, or not UTF-8.
        """
        with named_errors(self.name):
            data = self._stream.read()
        self._bytes_read += len(data)
        try:
            return data.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            number = data.count(b"\n", 0, error.start)
            return decode(data.split(b"\n")[number], f"{self.name}:{number + 1}")  # which says it

    def fraction(self) -> float | None:
        """How much of the input is read; None: who knows."""
        if self._raw is None or not self._size:
            return None
        # Buffers read ahead, which matters for small files; but only the file knows how far a
        # decompressor is.
        done = self._raw.tell() if self._is_compressed else self._bytes_read
        return done / self._size


@contextlib.contextmanager
def open_lines(source: str | Path) -> Iterator[Lines]:
    """Opens a file, also one compressed with gzip or Zstandard, a pipe, or "-" for stdin.

    A file in a bucket is copied to this machine first.

    Raises:
        UserError: it cannot be opened.
    """
    if str(source) == STDIN:
        yield Lines("stdin", _stdin(), None)
        return
    with contextlib.ExitStack() as stack:
        with named_errors(source):
            raw = stack.enter_context(open(fetch(as_path(source)), "rb", buffering=0))
            # A pipe has no size, and nobody can look into it beforehand.
            is_file = stat.S_ISREG(os.fstat(raw.fileno()).st_mode)
            stream = decompress(raw) if is_file else io.BufferedReader(raw)
        yield Lines(str(source), stream, raw if is_file else None)


def may_wait(source: str | Path) -> bool:
    """Whether lines of an input come when somebody writes them: a pipe or a terminal."""
    try:
        place = _stdin().fileno() if str(source) == STDIN else source
        return not stat.S_ISREG(os.stat(place).st_mode)
    except OSError:
        return False  # no file of this machine, or nothing that the system knows


def _stdin() -> BinaryIO:
    """Standard input.

    Raises:
        UserError: it is closed.
    """
    if sys.stdin is None:
        raise UserError("stdin is closed; give a file as the input")
    try:
        # Not Python's own reader, which must not be busy in a thread when the program ends.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:
        return sys.stdin.buffer  # somebody has put something else in its place


def decode(data: bytes, place: str, errors: str = "strict", remedy: str = _CONVERT) -> str:
    """A line of UTF-8 as text.

    Args:
        data: the line.
        place: what it is called in errors.
        errors: "strict", or "replace" for U+FFFD in place of what is no UTF-8.
        remedy: what the user is told to do.

    Raises:
        UserError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: byte {error.start + 1} of the line (0x{data[error.start]:02x}) is not "
            f"UTF-8; {remedy}"
        ) from error
