"""A lock on a directory, or a file, that is being written: one process at a time.

The lock is a small file. Its first line names the holder:

    process 7 on a (bert-jax train), since 2026-11-23 08:14:30 UTC

On a disk the operating system holds it (`filelock`), and releases it when the process ends, however
it ends. In a bucket, where a file can only be created if it is missing, the holder renews the file
every `HEARTBEAT_SECONDS`; one that has not changed for `STALE_SECONDS` was left by a process that
has ended. A holder that did not renew it in time, such as a suspended process, finds out by
`check_locks` that another process has taken it over.
"""

import contextlib
import datetime
import fcntl
import os
import secrets
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from bert_jax.errors import RetryableError, UnreachableError, UserError
from bert_jax.files.paths import filesystem, is_remote, reachable
from bert_jax.files.reading import open_own
from bert_jax.process import say

NAME = ".bert_jax.lock"
HEARTBEAT_SECONDS = 20.0
STALE_SECONDS = 90.0
# The longest time in which a bucket stores a small file that has been sent.
_SETTLE_SECONDS = 2.0

# The paths that this process has locked, see `_name_of`; with the lock, if it is in a bucket.
_held: "dict[str, _BucketLock | None]" = {}


@contextlib.contextmanager
def locked(path: Path, *, inside: bool = False) -> Iterator[None]:
    """Holds the lock on a directory or file that is written within the block.

    Below a directory, or a `DIRECTORY.partial`, that this process has locked, nothing is locked
    again. With several hosts, only the main one calls it.

    Args:
        path: directory or file, local or in a bucket; it need not exist.
        inside: whether the lock is a file in the directory `path`, which is made for it; if not,
            it is beside `path`, which then can be moved as a whole.

    Raises:
        UserError: another process holds it, or the file of the lock cannot be written.
    """
    path = path if is_remote(path) else path.resolve()
    if not inside and any(_name_of(parent) in _held for parent in path.parents):
        yield
        return
    file = path / NAME if inside else path.with_name(f".{path.name}{NAME}")
    with _BucketLock(path, file) if is_remote(path) else _on_disk(path, file) as lock:
        _held[_name_of(path)] = lock
        try:
            yield
        finally:
            _held.pop(_name_of(path), None)  # DIRECTORY and DIRECTORY.partial have one name


def check_locks() -> None:
    """Checks that this process still has its locks in buckets; before something is written.

    Raises:
        RetryableError: another process has taken one over, as this one did not renew it in time.
    """
    for lock in filter(None, list(_held.values())):
        lock.check()


@contextlib.contextmanager
def guarded(directory: Path) -> Iterator[None]:
    """Waits until no other process changes a local directory's manifest; within it, none does."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot do it
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _on_disk(path: Path, file: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise _in_use(path, file.read_text(errors="replace")) from None
        with open(open_own(file, os.O_WRONLY), "w") as stream:
            stream.truncate(0)  # of a process that was killed
            stream.write(_this_process())
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error} ({error.filename}); fix that, or give "
            "another path"
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # while it is held: a process that waits sees it
            file.unlink()
        lock.release()


class _BucketLock:
    """The lock of this process on `path`, in a bucket."""

    def __init__(self, path: Path, file: Path) -> None:
        self._path, self._file = path, file
        self._holder, self._token = _this_process(), secrets.token_hex(8)
        self._lost: UserError | None = None
        self._tried = time.time()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, daemon=True)

    def __enter__(self) -> Self:
        """Raises UserError if another process holds the lock."""
        with reachable(self._path):
            while not self._create():
                content = self._read()
                if content and self._has_ended(content):
                    self._write()
                    time.sleep(_SETTLE_SECONDS)  # of two that take it over, the last one has it
                    if self._token in self._read():
                        break
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Removes the file, unless another process has taken the lock over."""
        self._released.set()
        self._thread.join()
        # A file that stays is stale for the next holder.
        with contextlib.suppress(OSError, UserError), reachable(self._path):
            if self._token in self._read():
                self._file.unlink()

    def check(self) -> None:
        """Raises RetryableError if another process has taken the lock over."""
        if time.time() - self._tried > STALE_SECONDS:
            self._renew()  # the process was suspended
        if self._lost is not None:
            raise self._lost

    def _has_ended(self, content: str) -> bool:
        """Whether the holder does not renew this content; raises UserError if it does."""
        say(
            f"bert-jax: {self._path} is locked by {_holder_of(content)}; waiting for "
            f"{STALE_SECONDS:.0f} s to see whether that still runs"
        )
        end = time.monotonic() + STALE_SECONDS
        while time.monotonic() < end:
            time.sleep(min(STALE_SECONDS / 20, 5.0))
            if (now := self._read()) != content:
                if now:
                    raise _in_use(self._path, now)
                return False
        return True

    def _keep_renewing(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            self._renew()

    def _renew(self) -> None:
        self._tried = time.time()
        with contextlib.suppress(OSError, UnreachableError), reachable(self._path):  # soon again
            content = self._read()
            if content and self._token not in content:
                self._lost = RetryableError(
                    f"{self._path} was taken over by {_holder_of(content)}, while this process "
                    f"did not respond for {STALE_SECONDS:.0f} s; run the same command again when "
                    "that has ended"
                )
            else:
                self._write()

    def _content(self) -> bytes:
        return f"{self._holder}{self._token}\nrenewed {_now()} {time.monotonic()}\n".encode()

    def _create(self) -> bool:
        """Creates the file; False if it exists."""
        store, name = filesystem(self._file)
        try:
            store.pipe_file(name, self._content(), mode="create")
        except FileExistsError:
            return False
        return True

    def _write(self) -> None:
        store, name = filesystem(self._file)
        store.pipe_file(name, self._content())

    def _read(self) -> str:
        """The content of the file; "" if there is none."""
        store, name = filesystem(self._file)
        try:
            return bytes(store.cat_file(name)).decode(errors="replace")
        except FileNotFoundError:
            return ""


def _in_use(path: Path, content: str) -> UserError:
    return UserError(
        f"{path} is being written by {_holder_of(content)}; wait for it, end it, or give another "
        "path"
    )


def _holder_of(content: str) -> str:
    return content.partition("\n")[0] or "another process"


def _this_process() -> str:
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.name
    command = shlex.join([name, *sys.argv[1:2]])[:100]
    return f"process {os.getpid()} on {socket.gethostname()} ({command}), since {_now()}\n"


def _name_of(path: Path) -> str:
    return os.fspath(path).removesuffix(".partial")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
