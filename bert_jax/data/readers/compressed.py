"""Compressed files, known by their first bytes: gzip and Zstandard."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from bert_jax.errors import UserError

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
_BUFFER_BYTES = 1 << 20
_FRAME_BYTES = 1 << 14


@contextlib.contextmanager
def named_errors(name: str | Path) -> Iterator[None]:
    """Turns what the operating system and the decompressors say of a file into one line."""
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError, EOFError) as error:
        raise UserError(f"{name}: damaged compressed file: {error}; fetch it anew") from error
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}") from error


def decompress(raw: BinaryIO) -> BinaryIO:
    """A buffered reader of a file's content; .gz and .zst are known by their first bytes."""
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=raw), _BUFFER_BYTES))
    if magic == _ZSTANDARD_MAGIC:
        return io.BufferedReader(_ZstandardReader(raw), _BUFFER_BYTES)
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, raw), _BUFFER_BYTES))


class _ZstandardReader(io.RawIOBase):
    """Frames of a .zst file one after the other.

    The library's own stream reader takes the end of a truncated file for the end of the text.
    """

    def __init__(self, raw: BinaryIO):
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._frame_begun = False
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._text:
            data = b""
            if self._frame.eof:
                data = self._frame.unused_data
                self._frame = zstandard.ZstdDecompressor().decompressobj()
                self._frame_begun = False
            data = data or self._raw.read(_FRAME_BYTES)
            if not data:
                if self._frame_begun:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            self._frame_begun = True
            self._text = memoryview(self._frame.decompress(data))
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count
