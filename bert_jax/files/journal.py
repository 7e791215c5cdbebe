"""Files kept between two calls: a directory of unfinished work that the next call continues.

    DIRECTORY/
      NAME …         files that grow; what follows the recorded bytes was written after the record
      .record.json   {"request": …, "count": 4, "state": {…}, "files": {NAME: "SIZE:SHA-256"},
                      "checksum": SHA-256 of the other fields}

Nothing is read or written through a link, or through another name of the same file.
"""

import contextlib
import fnmatch
import functools
import glob
import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from bert_jax.errors import UserError
from bert_jax.files.atomic import atomic_file, not_written, write_atomically
from bert_jax.files.lock import NAME as LOCK
from bert_jax.files.lock import locked
from bert_jax.files.manifest import manifest_of
from bert_jax.files.paths import below
from bert_jax.files.reading import JSON_BYTES, open_own
from bert_jax.options import differing_names
from bert_jax.process import say

RECORD = ".record.json"
RECORD_SECONDS = 5.0
_STATE = re.compile(r"\d{1,18}:[0-9a-f]{64}")
_BLOCK_BYTES = 1 << 20

# Exceptions of damaged records and files.
_DAMAGES = (ValueError, LookupError, TypeError, AttributeError, RecursionError, FileNotFoundError)

Request = Callable[[], Mapping[str, Any]]
"""Returns everything that the files depend on, as values of JSON."""


class GrowingFile(io.BufferedRandom):
    """A file at the end of its recorded bytes; what follows them is removed.

    Attributes:
        size: bytes that were recorded or written since.
    """

    def __init__(self, path: Path, state: str = "") -> None:
        """Raises ValueError or FileNotFoundError if `state`, "SIZE:SHA-256", is not in the file."""
        flags = os.O_RDWR if state else os.O_RDWR | os.O_CREAT
        super().__init__(io.FileIO(open_own(path, flags), "r+"))
        self._digest = _verified(self, state or _state(0, hashlib.sha256()))
        self.size = self.tell()
        self.truncate()

    @property
    def state(self) -> str:
        """Size and SHA-256 of these bytes."""
        return _state(self.size, self._digest)

    def write(self, data: Any) -> int:
        """Appends bytes."""
        self._digest.update(data)
        self.size += len(data)
        return super().write(data)

    def sync(self) -> None:
        """Gives everything to the disk."""
        self.flush()
        os.fsync(self.fileno())


class Journal:
    """The files of a directory, and the record of how far they go.

    Attributes:
        directory: the directory.
        count, state: last arguments of `mark`, here or in an earlier call; at first 0 and {}.
        files: size and SHA-256 of each file at this moment, by name.
    """

    def __init__(self, directory: Path, content: str, request: Request | None) -> None:
        """Reads the record, if there is one.

        Args:
            directory: a directory on this machine; it may be missing.
            content: a description for messages, such as "{:,} predictions", with the count.
            request: None: the work cannot be continued, and nothing is recorded.

        Raises:
            UserError: the record is damaged, a link or another name of a file, or belongs to
                another request; also in `open` and `check`, for their files.
        """
        self.directory = directory
        self._content, self._remedy = content, f"remove {directory} to start anew"
        self._request = request and functools.cache(request)  # it may add up all parameters
        self._open: dict[str, GrowingFile] = {}
        self.count: int = 0
        self.state: Mapping[str, Any] = {}
        self.files: Mapping[str, str] = {}
        if os.path.lexists(directory / RECORD):
            self._check_request(self._read())
        self._recorded: Mapping[str, str] = self.files
        self._recorded_at = time.monotonic()

    def open(self, name: str) -> GrowingFile:
        """A file at the end of its recorded bytes, or a new one."""
        if name not in self._open:
            try:
                self._open[name] = GrowingFile(self._path(name), self._recorded.get(name, ""))
            except _DAMAGES as error:
                raise self.damaged(name) from error
        return self._open[name]

    def check(self, name: str) -> None:
        """Compares a recorded file with its checksum, without opening it for writing."""
        try:
            with open(open_own(self._path(name)), "rb") as file:
                _verified(file, self.files[name])
        except _DAMAGES as error:
            raise self.damaged(name) from error

    def mark(self, count: int, state: Mapping[str, Any]) -> None:
        """Says that the work can be continued from here; recorded from time to time.

        Args:
            count: number of finished items.
            state: values of JSON with which the caller can continue.

        Raises:
            UserError: the record cannot be written.
        """
        if self._request is None:
            return
        self.count, self.state = count, state
        self.files = {name: file.state for name, file in self._open.items()}
        if time.monotonic() - self._recorded_at >= RECORD_SECONDS:
            self._record()

    def _record(self) -> None:
        """Gives everything to the disk, and records the last mark."""
        self.sync()
        assert self._request is not None  # else nothing is marked
        fields = {
            "request": self._request(),
            "count": self.count,
            "state": self.state,
            "files": self.files,
        }
        content = {**fields, "checksum": checksum(fields)}
        write_atomically(self.directory / RECORD, json.dumps(content, indent=1).encode())
        self._recorded, self._recorded_at = self.files, time.monotonic()

    @contextlib.contextmanager
    def whole(self, name: str) -> Iterator[BinaryIO]:
        """Writes a whole file and records it; meanwhile, its old version stays readable."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with atomic_file(self._path(name)) as file:
            yield file
        self.files = {name: manifest_of(self.directory, [name])[name][0]}
        self._record()

    def sync(self) -> None:
        """Gives everything to the disk."""
        for file in self._open.values():
            file.sync()

    def keep(self) -> str:
        """Records the last mark; returns its description, such as "4 predictions", or ""."""
        with contextlib.suppress(UserError, OSError):  # the error that ended the call comes first
            if self.files != self._recorded:
                self._record()
        return self._content.format(self.count) if self._recorded else ""

    def close(self) -> None:
        """Closes all files, also those that cannot be written."""
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.close()

    def damaged(self, name: str) -> UserError:
        """The error for a file that is not as recorded."""
        return UserError(f"{self.directory / name} is damaged; {self._remedy}")

    def _path(self, name: str) -> Path:
        return below(self.directory, name, self.directory / RECORD)

    def _read(self) -> Any:
        """Reads the record; returns the request that it belongs to."""
        try:
            with open(open_own(self.directory / RECORD), "rb") as file:
                fields = json.loads(file.read(JSON_BYTES))
            if fields.pop("checksum") != checksum(fields):
                raise ValueError("the checksum differs")
            self.count, self.state = fields["count"], {**fields["state"]}
            self.files = {**fields["files"]}
            are_files = all(map(_STATE.fullmatch, self.files.values()))
            if type(self.count) is not int or self.count < 0 or not are_files:
                raise ValueError("a value is none that is recorded")
            return {**fields["request"]}
        except _DAMAGES as error:
            raise self.damaged(RECORD) from error

    def _check_request(self, then: Mapping[str, Any]) -> None:
        changed = ["input"]
        if self._request is not None:
            changed = differing_names(then, json.loads(json.dumps(self._request())))
        if changed:
            raise UserError(
                f"{self.directory} has {self._content.format(self.count)} of another request "
                f"(other {', '.join(changed)}); repeat that request, {self._remedy}, or give "
                "another output"
            )


@contextlib.contextmanager
def continued(
    directory: Path, names: Collection[str], content: str, request: Request | None
) -> Iterator[Journal]:
    """Keeps a journal for work, and removes its directory at the end of the block.

    After an error, everything up to the last mark is kept.

    Args:
        directory: a directory on this machine, created if missing.
        names: patterns of the names of the files.
        content: see `Journal`.
        request: see `Journal`.

    Raises:
        UserError: another process works there, a file cannot be written, or the directory is
            damaged, belongs to another request, or has other files.
    """
    check_directory(directory, names)
    with locked(directory, inside=True):
        journal = Journal(directory, content, request)
        with contextlib.closing(journal):
            for name in journal.files:
                journal.open(name)
            try:
                yield journal
            except BaseException as error:
                if kept := directory.exists() and journal.keep():
                    if not (isinstance(error, KeyboardInterrupt) and str(error)):
                        say(f"{directory} keeps {kept}; the same command continues after them")
                else:
                    _remove(directory, names)
                if isinstance(error, OSError):
                    raise not_written(directory, error) from error
                raise
            _remove(directory, names)


def _remove(directory: Path, names: Collection[str]) -> None:
    """Removes the files of a journal, and its directory unless it has a hidden file of the user."""
    own = (*names, RECORD, LOCK, *(f".{n}.*.partial" for n in (glob.escape(RECORD), *names)))
    for path in [*directory.iterdir()] if directory.exists() else ():
        if any(fnmatch.fnmatchcase(path.name, name) for name in own):
            with contextlib.suppress(OSError):
                path.unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()


def check_directory(directory: Path, names: Collection[str]) -> None:
    """Checks that a directory of a journal has no other files, except hidden ones.

    Raises:
        UserError: it has, or is a file or a link.
    """
    problem = "is a file or a link" if os.path.lexists(directory) else ""
    if directory.is_dir() and not directory.is_symlink():
        visible = [path.name for path in directory.iterdir() if not path.name.startswith(".")]
        others = [n for n in visible if not any(fnmatch.fnmatchcase(n, name) for name in names)]
        problem = f"has {min(others)!r}" if others else ""
    if problem:
        raise UserError(
            f"{directory} is for unfinished work, but {problem}; move it away, or give another "
            "output"
        )


def checksum(fields: Mapping[str, Any]) -> str:
    """The SHA-256 of values of JSON."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _verified(stream: BinaryIO, state: str) -> Any:
    """Reads as many bytes as recorded; returns their SHA-256, or raises ValueError."""
    digest, left = hashlib.sha256(), int(state.partition(":")[0])
    while left > 0 and (block := stream.read(min(left, _BLOCK_BYTES))):
        left -= len(block)
        digest.update(block)
    if _state(stream.tell(), digest) != state:
        raise ValueError("the checksum differs")
    return digest


def _state(size: int, digest: Any) -> str:
    return f"{size}:{digest.hexdigest()}"
