"""Numbered lines of a file or of stdin: UTF-8, compressed or not."""

import contextlib
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch

STDIN = "-"


class Lines:
    """The lines of an input, read once.

    Attributes:
        name: what the input is called in errors.
    """

    def __init__(self, name: str, stream: BinaryIO, raw: io.FileIO | None) -> None:
        """See `open_lines`; `raw` is the file below the stream, None if it is no regular file."""
        self.name = name
        self._stream = stream
        self._raw = raw
        self._size = os.fstat(raw.fileno()).st_size if raw is not None else 0
        self._is_compressed = raw is None or getattr(stream, "raw", None) is not raw
        self._bytes_read = 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Numbers from 1, and lines with their ends; a byte order mark is dropped.

        Raises:
            UserError: the input cannot be read, is damaged, or a line is not UTF-8 or too long.
        """
        # Not at the top: the command line imports this before it knows that it will read.
        from bert_jax.data.sources.files import LINE_BYTES

        number = 0
        with _named_errors(self.name):
            while data := self._stream.readline(LINE_BYTES + 1):
                number += 1
                self._bytes_read += len(data)
                place = f"{self.name}:{number}"
                if len(data) > LINE_BYTES:
                    limit = f"{LINE_BYTES >> 20} MiB"
                    raise UserError(
                        f"{place}: the line is longer than the limit of {limit}; break it"
                    )
                line = _decode(data, place)
                yield number, line.removeprefix("\ufeff") if number == 1 else line

    def whole(self) -> str:
        """All that is left, of any length of line.

        Raises:
            UserError: the input cannot be read, is damaged, or not UTF-8.
        """
        with _named_errors(self.name):
            data = self._stream.read()
        self._bytes_read += len(data)
        try:
            return data.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            number = data.count(b"\n", 0, error.start)
            return _decode(data.split(b"\n")[number], f"{self.name}:{number + 1}")  # which says it

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
    from bert_jax.data.sources.files import decompress

    if str(source) == STDIN:
        yield Lines("stdin", sys.stdin.buffer, None)
        return
    with contextlib.ExitStack() as stack:
        with _named_errors(str(source)):
            raw = stack.enter_context(open(fetch(as_path(source)), "rb", buffering=0))
            # A pipe has no size, and nobody can look into it beforehand.
            is_file = stat.S_ISREG(os.fstat(raw.fileno()).st_mode)
            stream = decompress(raw) if is_file else io.BufferedReader(raw)
        yield Lines(str(source), stream, raw if is_file else None)


@contextlib.contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Turns what the operating system and the decompressors say into one line."""
    import zstandard

    try:
        yield
    except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError, EOFError) as error:
        raise UserError(f"{name}: damaged compressed file: {error}; fetch it anew") from error
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}") from error


def _decode(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: byte {error.start + 1} of the line (0x{data[error.start]:02x}) is not "
            "UTF-8; convert the file to UTF-8"
        ) from error
