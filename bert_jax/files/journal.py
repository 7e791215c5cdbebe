"""A directory of unfinished work, from which the next call with the same request continues.

    DIRECTORY/
      NAME …         files that grow; what follows the recorded bytes was written after the record
      .record.json   {"request": …, "counts": {…}, "digest": "…", "files": {NAME: "SIZE:SHA-256"},
                      "checksum": SHA-256 of the other fields}

Nothing is read or written through a link, or through another name of the same file.
"""

import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from bert_jax.errors import RetryableError, UserError
from bert_jax.files.atomic import atomic_file, not_written, write_atomically
from bert_jax.files.lock import check_locks, locked
from bert_jax.files.manifest import manifest_of
from bert_jax.files.paths import below
from bert_jax.files.reading import JSON_BYTES, open_own
from bert_jax.options import differing_names
from bert_jax.standard_streams import say

_RECORD = ".record.json"
_RECORD_SECONDS = 5.0
_BLOCK_BYTES = 1 << 20

Request = Callable[[], Mapping[str, Any]]
"""Returns everything that the files depend on, as values of JSON."""


@dataclasses.dataclass(frozen=True)
class _Mark:
    """A state from which the work can be continued; see `Journal.mark`."""

    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    digest: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)


class GrowingFile:
    """A file of a journal, at the end of its recorded bytes.

    Attributes:
        size: bytes that are recorded or written since.
    """

    def __init__(self, path: Path, state: str, *, writes: bool) -> None:
        """Reads what is recorded; with `writes`, everything else in the file is removed.

        Raises:
            ValueError, FileNotFoundError: the recorded bytes are not there.
            UserError: it is no file of its own.
        """
        self._path, self._digest = path, hashlib.sha256()
        size, _, expected = (state or f"0:{self._digest.hexdigest()}").partition(":")
        self.size = left = int(size)
        flags = (os.O_RDWR if writes else os.O_RDONLY) | (0 if state else os.O_CREAT)
        self._stream: BinaryIO = os.fdopen(open_own(path, flags), "r+b" if writes else "rb")
        while left and (block := self._stream.read(min(left, _BLOCK_BYTES))):
            left -= len(block)
            self._digest.update(block)
        if left or self._digest.hexdigest() != expected:
            self._stream.close()
            raise ValueError("the checksum differs")
        if writes:
            self._stream.truncate()

    @property
    def state(self) -> str:
        """Size and SHA-256 of what is written, as in a manifest."""
        return f"{self.size}:{self._digest.hexdigest()}"

    def write(self, data: bytes) -> None:
        """Appends data; raises UserError if it cannot be written."""
        with _writing(self._path):
            self._stream.write(data)
        self._digest.update(data)
        self.size += len(data)

    def read(self, size: int, offset: int) -> bytes:
        """Recorded bytes from an offset."""
        return os.pread(self._stream.fileno(), size, offset)

    def flush(self, *, to_disk: bool = False) -> None:
        """Gives everything to the operating system, and with `to_disk` to the disk."""
        with _writing(self._path):
            self._stream.flush()
            if to_disk:
                os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Closes the file, also if it cannot be written."""
        with contextlib.suppress(OSError):
            self._stream.close()


class Journal:
    """The files of a directory, and the record of how far they go.

    Attributes:
        directory: the directory.
    """

    def __init__(
        self, directory: Path, content: str, request: Request | None, *, writes: bool = True
    ) -> None:
        """Reads the record, if there is one, and what is recorded of the files.

        Args:
            directory: a directory on this machine; it may be missing.
            content: what it keeps, such as "{:,} predictions", with the sum of all counts.
            request: None: the work cannot be continued, and nothing is recorded.
            writes: whether the files are continued, and what is not recorded is removed.

        Raises:
            UserError: the record or a file is damaged, a link or another name of a file, or they
                belong to another request.
        """
        self.directory = directory
        self._content, self._remedy = content, f"remove {directory} to start anew"
        self._request = request and functools.cache(request)  # it may add up all parameters
        self._writes, self._open = writes, dict[str, GrowingFile]()
        self._recorded = self._marked = self._read()
        self._recorded_at = time.monotonic()
        for name in self._recorded.files:
            self.open(name)

    @property
    def counts(self) -> Mapping[str, int]:
        """How much is done: what was last given to `mark`, here or by an earlier call."""
        return self._marked.counts

    @property
    def digest(self) -> str:
        """The digest that was given with it."""
        return self._marked.digest

    @property
    def files(self) -> Collection[str]:
        """Names of the files that are recorded."""
        return self._marked.files.keys()

    def open(self, name: str) -> GrowingFile:
        """A file at the end of its recorded bytes, or a new one."""
        if name not in self._open:
            path = below(self.directory, name, self.directory / _RECORD)
            try:
                with _writing(path):
                    state = self._marked.files.get(name, "")
                    self._open[name] = GrowingFile(path, state, writes=self._writes)
            except (ValueError, FileNotFoundError) as error:
                raise self.damaged(name) from error
        return self._open[name]

    def mark(self, counts: Mapping[str, int], digest: str = "") -> None:
        """Says that the work can be continued from here; recorded from time to time.

        Args:
            counts: how much is done, by names that the caller chooses.
            digest: what the caller compares to see that it continues from the same.

        Raises:
            UserError: the record cannot be written, or another process has taken the work over.
        """
        if self._request is None:
            return
        files = {name: file.state for name, file in self._open.items()}
        self._marked = _Mark(dict(counts), digest, files)
        if time.monotonic() - self._recorded_at >= _RECORD_SECONDS:
            self._record()

    @contextlib.contextmanager
    def whole(self, name: str) -> Iterator[BinaryIO]:
        """Writes a whole file, whose older version others may read meanwhile, and records it."""
        path = below(self.directory, name, self.directory / _RECORD)
        with _writing(path):
            self.directory.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            yield file
        [state] = manifest_of(self.directory, [name])[name]
        self._marked = _Mark(files={name: state})
        self._record()

    def keep(self) -> str:
        """Records the last mark; returns what is kept, such as "4 predictions", or ""."""
        with contextlib.suppress(UserError):  # the error that ended the call comes first
            if self._marked != self._recorded:
                self._record()
        return self._described(self._recorded) if self._recorded.files else ""

    def flush(self) -> None:
        """Gives everything to the disk."""
        for file in self._open.values():
            file.flush(to_disk=True)

    def close(self) -> None:
        """Closes all files."""
        for file in self._open.values():
            file.close()

    def damaged(self, name: str) -> UserError:
        """The error for a file that is not as recorded."""
        return UserError(f"{self.directory / name} is damaged; {self._remedy}")

    def _described(self, mark: _Mark) -> str:
        return self._content.format(sum(mark.counts.values()))

    def _record(self) -> None:
        check_locks()
        self.flush()
        assert self._request is not None  # else nothing is marked
        fields = {"request": self._request(), **dataclasses.asdict(self._marked)}
        fields["checksum"] = _checksum(fields)
        write_atomically(self.directory / _RECORD, json.dumps(fields, indent=1).encode())
        self._recorded, self._recorded_at = self._marked, time.monotonic()

    def _read(self) -> _Mark:
        """The state to continue from, at first an empty one."""
        try:
            with open(open_own(self.directory / _RECORD), "rb") as file:
                fields = json.loads(file.read(JSON_BYTES))
            if fields.pop("checksum") != _checksum(fields):
                raise ValueError("the checksum differs")
            then, mark = fields.pop("request"), _Mark(**fields)
            if not all(type(count) is int and count >= 0 for count in mark.counts.values()):
                raise ValueError("a count is no number")
            if not all(isinstance(state, str) for state in mark.files.values()):
                raise ValueError("the state of a file is no text")
            what = f"{self.directory} has {self._described(mark)} of another"
            if self._request is None:
                raise UserError(f"{what} input; {self._remedy}, or give another output")
            changed = differing_names(then, json.loads(json.dumps(self._request())))
        except FileNotFoundError:
            return _Mark()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self.damaged(_RECORD) from error
        if changed:
            raise UserError(
                f"{what} request (other {', '.join(changed)}); repeat that request, "
                f"{self._remedy}, or give another output"
            )
        return mark


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
        UserError: another process works there, or the directory is damaged, of another request, or
            has files of others.
    """
    check_directory(directory, names)
    with locked(directory, inside=True):
        journal = Journal(directory, content, request)
        with contextlib.closing(journal):
            try:
                yield journal
            except BaseException as error:
                with contextlib.suppress(RetryableError):  # it belongs to another process by now
                    check_locks()
                    if kept := directory.exists() and journal.keep():
                        if not (isinstance(error, KeyboardInterrupt) and str(error)):
                            say(f"{directory} keeps {kept}; the same command continues after them")
                    else:
                        shutil.rmtree(directory, ignore_errors=True)
                raise
            shutil.rmtree(directory, ignore_errors=True)


def check_directory(directory: Path, names: Collection[str]) -> None:
    """Checks that a directory of a journal has no other files, except hidden ones.

    Raises:
        UserError: it has, or is a file or a link.
    """
    if directory.is_dir() and not directory.is_symlink():
        visible = [path.name for path in directory.iterdir() if not path.name.startswith(".")]
        others = [n for n in visible if not any(fnmatch.fnmatchcase(n, name) for name in names)]
    else:
        others = [directory.name] if os.path.lexists(directory) else []
    if others:
        raise UserError(
            f"{directory} is for unfinished work, but has {min(others)!r}; move it away, or give "
            "another output"
        )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise not_written(path, error) from error


def _checksum(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
