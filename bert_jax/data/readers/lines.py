"""Numbered lines of a file or of stdin: UTF-8, UTF-16 or UTF-32 with a mark, compressed or not."""

import bz2
import codecs
import contextlib
import functools
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from bert_jax.errors import OptionError, UserError
from bert_jax.files import as_path, fetch
from bert_jax.files.reading import BZIP2, FIRST_BYTES, GZIP, XZ, ZSTANDARD, format_of

STDIN = "-"
LINE_BYTES = 64 * 1024 * 1024
"""The limit on the length of a line; a longer line is probably not text."""

_CONVERT = "convert the file to UTF-8"
# The mark of UTF-32 begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


class _DamagedError(Exception):
    """Compressed data is damaged."""


_DAMAGED = (
    *(_DamagedError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError),
)
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_BUFFER_BYTES = 1 << 20
# Read at once of compressed data. Zstandard may make 128 KiB of 4 bytes: 32 MiB of these.
_PART_BYTES = 1 << 10


class Lines:
    """The lines of an input, read once.

    Attributes:
        name: name of the input in errors.
    """

    def __init__(
        self,
        name: str,
        stream: io.BufferedReader,
        raw: io.FileIO | None = None,
        *,
        errors: str = "strict",
        remedy: str = _CONVERT,
        is_file: bool = False,
    ) -> None:
        """The lines of a stream; `open_lines` opens the stream of a file.

        Args:
            name: name of the input in errors.
            stream: the content.
            raw: file below the stream, for `fraction`; None if it is not a regular file.
            errors: handling of bytes that are not UTF-8, see `decode`.
            remedy: advice in errors, see `decode`.
            is_file: whether the stream never waits for more, also without `raw`.
        """
        self.name = name
        self._stream = self._opened = stream  # which would close its file if nothing had it
        self._errors, self._remedy = errors, remedy
        self._raw = raw
        self._is_file = is_file or raw is not None
        self._size = os.fstat(raw.fileno()).st_size if raw is not None else 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Numbers from 1, and lines with their line ends; a byte order mark is dropped.

        Raises:
            UserError: the input cannot be read, is damaged, or a line is not UTF-8 or too long.
        """
        number = 0
        with named_errors(self.name):
            self._recode()
            while data := self._stream.readline(LINE_BYTES + 1):
                number += 1
                location = f"{self.name}:{number}"
                if len(data) > LINE_BYTES:
                    limit = f"{LINE_BYTES >> 20} MiB"
                    raise UserError(
                        f"{location}: the line is longer than the limit of {limit}; break it into "
                        "lines"
                    )
                line = decode(data, location, self._errors, self._remedy)
                yield number, line.removeprefix("\ufeff") if number == 1 else line

    def whole(self) -> str:
        """The rest of the input, with lines of any length.

        Raises:
            UserError: the input cannot be read, is damaged, or not UTF-8.
        """
        with named_errors(self.name):
            self._recode()
            data = self._stream.read()
        try:
            return data.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            number = data.count(b"\n", 0, error.start)
            return decode(data.split(b"\n")[number], f"{self.name}:{number + 1}")  # raises

    def _recode(self) -> None:
        """Converts the input to UTF-8 if it begins with the mark of another encoding.

        Lines that end in CR, as if none ends in LF, then end in LF.
        """
        first = self._stream.peek(FIRST_BYTES)
        if what := format_of(first):
            rule = "unpack it, or export its text as .txt, .jsonl or .csv"
            raise UserError(f"{self.name} is {what}, not text; {rule}")
        mark = next((mark for mark in _MARKS if first.startswith(mark)), None)
        if mark is not None:
            self._stream.read(len(mark))
            recoded = _Chunks(_recoded(self.name, self._stream, _MARKS[mark]))
            self._stream = io.BufferedReader(recoded, _BUFFER_BYTES)
        # Not of a pipe, which may have only a part of a line so far.
        beginning = self._stream.peek(_BUFFER_BYTES) if self._is_file else b""
        if b"\r" in beginning and b"\n" not in beginning:
            parts = iter(functools.partial(self._stream.read1, _BUFFER_BYTES), b"")
            recoded = _Chunks(part.replace(b"\r", b"\n") for part in parts)
            self._stream = io.BufferedReader(recoded, _BUFFER_BYTES)

    def fraction(self) -> float | None:
        """The share of the input that has been read; None if it is unknown."""
        if self._raw is None or not self._size:
            return None
        # The buffer reads ahead, which matters for small files; but only the file knows the
        # position of a decompressor or decoder above it.
        is_same = self._stream.raw is self._raw
        return (self._stream if is_same else self._raw).tell() / self._size


@contextlib.contextmanager
def open_lines(source: str | Path) -> Iterator[Lines]:
    """Opens a file, a pipe, or "-" for stdin.

    A file may be compressed with gzip, bzip2, xz or Zstandard. One in a bucket is copied to this
    machine first.

    Raises:
        UserError: the input cannot be opened.
    """
    if str(source) == STDIN:
        yield Lines("stdin", _stdin(), None)
        return
    with contextlib.ExitStack() as stack:
        with named_errors(source):
            raw = stack.enter_context(open(fetch(as_path(source)), "rb", buffering=0))
            # A pipe has no size, and its first bytes cannot be read twice.
            is_file = stat.S_ISREG(os.fstat(raw.fileno()).st_mode)
            stream: Any = decompress(raw) if is_file else io.BufferedReader(raw)
        yield Lines(str(source), stream, raw if is_file else None)


def uncompressed_name(source: str | Path) -> str:
    """The name of a file in lower case, without the ending of its compression."""
    name = str(source).lower()
    ending = next((ending for ending in _COMPRESSED if name.endswith(ending)), "")
    return name.removesuffix(ending)


def may_wait(source: str | Path) -> bool:
    """Whether an input is a pipe or a terminal, where lines arrive while they are written."""
    try:
        file = _stdin().fileno() if str(source) == STDIN else source
        return not stat.S_ISREG(os.stat(file).st_mode)
    except OSError:
        return False  # not a file of this machine


def _stdin() -> io.BufferedReader:
    """Standard input.

    Raises:
        UserError: stdin is closed.
    """
    if sys.stdin is None:
        raise UserError("stdin is closed; give a file as the input")
    try:
        # Python's own reader must not be busy in a thread when the program ends.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:
        return io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))  # replaced, as in tests


def decode(data: bytes, location: str, errors: str = "strict", remedy: str = _CONVERT) -> str:
    """Decodes a line of UTF-8.

    Args:
        data: the line.
        location: name of the line in errors.
        errors: "strict", or "replace" for U+FFFD in place of bytes that are not UTF-8.
        remedy: advice in errors, see `OptionError.rule`.

    Raises:
        OptionError: the line is not UTF-8.
    """
    try:
        return data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        byte = f"byte {error.start + 1} of the line (0x{data[error.start]:02x})"
        problem = f"{location}: {byte} is not UTF-8"
        raise OptionError("data.errors", errors, remedy, problem) from error


@contextlib.contextmanager
def named_errors(name: str | Path) -> Iterator[None]:
    """Turns errors of the operating system and the decompressors into a one-line UserError."""
    try:
        yield
    except _DAMAGED as error:
        raise UserError(f"{name}: damaged compressed file: {error}; fetch it again") from error
    except OSError as error:
        rule = "; give a file" * isinstance(error, IsADirectoryError)
        raise UserError(f"{name}: cannot be read: {error.strerror or error}{rule}") from error


def decompress(raw: BinaryIO) -> io.BufferedReader:
    """A buffered reader of a file's content; compression is detected by the first bytes."""
    first = raw.read(FIRST_BYTES)
    raw.seek(0)
    kind = format_of(first)
    content: Any = raw
    if kind == GZIP:
        content = gzip.GzipFile(fileobj=raw)
    elif kind in _STREAMS:
        content = _Chunks(_content(raw, *_STREAMS[kind]))
    return io.BufferedReader(cast(io.RawIOBase, content), _BUFFER_BYTES)


class _Chunks(io.RawIOBase):
    """A stream of the bytes that an iterator yields."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks = filter(None, chunks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._rest = self._rest or memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _recoded(name: str, stream: io.BufferedReader, encoding: str) -> Iterator[bytes]:
    """A stream of another encoding in UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)()
    data = None
    while data != b"":
        data = stream.read1(_BUFFER_BYTES)
        try:
            yield decoder.decode(data, final=not data).encode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}: not valid {encoding[:6].upper()}: {error.reason}; save it as UTF-8"
            ) from error


def _content(
    raw: BinaryIO,
    new_stream: Callable[[], Any],
    parts_of: Callable[[Any, bytes], Iterator[bytes]],
    padding: bytes,
) -> Iterator[bytes]:
    """The content of the compressed streams of a file, one after the other, to its last byte.

    The libraries' own readers take a later stream that is damaged, or (Zstandard) a truncated one,
    for the end of the file.

    Args:
        raw: the file.
        new_stream: makes a decompressor of one stream.
        parts_of: a decompressor and more of its stream → the content, in parts of limited size.
        padding: bytes that may stand behind a stream.
    """
    stream = None
    while data := raw.read(_PART_BYTES):
        while data := data if stream else data.lstrip(padding):
            stream = stream or new_stream()
            yield from parts_of(stream, data)
            data = stream.unused_data
            stream = None if stream.eof else stream
    if stream:
        raise EOFError("it ends in the middle of a stream")


def _limited_parts(stream: Any, data: bytes) -> Iterator[bytes]:
    """The content of more of a stream, by a decompressor of the standard library."""
    try:
        content = stream.decompress(data, _BUFFER_BYTES)
        while content:
            yield content
            content = b"" if stream.eof else stream.decompress(b"", _BUFFER_BYTES)
    except OSError as error:  # bzip2's, about the data
        raise _DamagedError(error) from error


def _zstandard_parts(frame: Any, data: bytes) -> Iterator[bytes]:
    """The content of more of a frame; the library has no limit, but 4 bytes are 128 KiB at most."""
    yield frame.decompress(data)


# How each format is read in streams, the arguments of `_content` behind the file.
_STREAMS: dict[str, tuple[Callable[[], Any], Callable[[Any, bytes], Iterator[bytes]], bytes]] = {
    BZIP2: (bz2.BZ2Decompressor, _limited_parts, b""),
    XZ: (lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), _limited_parts, b"\0"),
    ZSTANDARD: (lambda: zstandard.ZstdDecompressor().decompressobj(), _zstandard_parts, b""),
}
