"""Files of a source: found by pattern, decompressed and decoded, with line numbers."""

import contextlib
import copy
import glob
import gzip
import io
import itertools
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from bert_jax.data.sources.source import Source, SourceSpec
from bert_jax.errors import UserError
from bert_jax.files import is_remote, matching_files, open_binary, reachable, state_of

LINE_BYTES = 64 * 1024 * 1024
"""The longest line that is read; a longer one is hardly text."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
_BUFFER_BYTES = 1 << 20
_FRAME_BYTES = 1 << 14


class FileSource(Source):
    """A source that reads files line by line.

    Attributes:
        paths: the files, in reading order.
    """

    def __init__(self, spec: SourceSpec, pattern: str):
        self.paths = find_files(pattern, spec.source)
        self._states = [state_of(path) for path in self.paths]
        super().__init__(spec, sum(state.size for state in self._states))
        self._starts = self._find_starts()

    def _find_starts(self) -> dict[Path, int]:
        """The bytes of the files before each one."""
        ends = itertools.accumulate(state.size for state in self._states)
        return dict(zip(self.paths, [0, *ends], strict=False))

    @property
    def piece_sizes(self) -> list[int]:
        """See `Source`; the pieces are the files."""
        return [state.size for state in self._states]

    def pieces(self, start: int, stop: int) -> "FileSource":
        """See `Source.piece_sizes`."""
        part = copy.copy(self)
        part.paths, part._states = self.paths[start:stop], self._states[start:stop]
        part.size = sum(state.size for state in part._states)
        part._starts = part._find_starts()
        return part

    def identity(self) -> dict[str, object]:
        """Name, size and modification time (ns) of every file."""
        return {
            "files": [
                [str(path), state.size, state.modified]
                for path, state in zip(self.paths, self._states, strict=True)
            ]
        }

    def numbered_lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Lines of one of the files, without line ends, counted from 1.

        A byte order mark is dropped. `position` follows.

        Raises:
            UserError: unreadable or damaged file, undecodable bytes, or a line above the limit.
        """
        with _named_errors(path), open_binary(path) as raw:
            lines = decompress(raw)
            number = 0
            while data := lines.readline(LINE_BYTES + 1):
                number += 1
                if len(data) > LINE_BYTES:
                    raise UserError(
                        f"{path}:{number}: the line is longer than the limit of "
                        f"{LINE_BYTES >> 20} MiB; break it into lines"
                    )
                text = decode(data, self.spec.errors, path, number)
                if number == 1:
                    text = text.removeprefix("\ufeff")
                yield number, text.rstrip("\r\n")
                self.position = self._starts[path] + raw.tell()


@contextlib.contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turns what the operating system, a store and the decompressors say into one line."""
    with reachable(path):
        try:
            yield
        except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError, EOFError) as error:
            raise UserError(f"{path}: damaged compressed file: {error}; fetch it anew") from error
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def find_files(pattern: str, source: str) -> list[Path]:
    """The files that a file name, a directory (all files below it) or a glob pattern names.

    Sorted by path; hidden files and folders inside directories are left out, and a file that is
    matched twice is taken once.

    Raises:
        UserError: there are none.
    """
    if not pattern:
        raise UserError(f"data.source: {source!r} names no file, directory or pattern")
    place = os.path.expanduser(pattern)
    if is_remote(place):
        if remote := matching_files(place):
            return remote
        raise UserError(f"data.source: {source!r}: there is no file at {pattern}")
    # A name that exists is meant as it stands, even with [brackets] in it.
    matches = [place] if os.path.exists(place) else glob.glob(place, recursive=True)
    if not matches:
        what = "matches no file" if glob.has_magic(place) else "does not exist"
        raise UserError(f"data.source: {source!r}: {pattern} {what} (in {os.getcwd()})")
    files = {file for match in matches for file in _files_below(Path(match))}
    if not files:
        raise UserError(f"data.source: {source!r}: there is no file in {pattern}")
    return sorted(files)


def _files_below(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder, name) for name in files if not name.startswith("."))


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


def decode(data: bytes, errors: str, path: Path | str, number: int) -> str:
    """UTF-8 to text (`SourceSpec.errors`).

    Raises:
        UserError: undecodable bytes and `errors` is "strict"; names file, line and byte.
    """
    try:
        return data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}:{number}: byte {error.start + 1} of the line (0x{data[error.start]:02x}) is "
            "not UTF-8; convert the file, or set data.errors=replace to read U+FFFD in its place"
        ) from error
