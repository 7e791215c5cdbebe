"""A lock on a directory, or a file, that is being written: one process at a time.

The lock is a small file, in a bucket as on a disk:

    {"host": "a", "machine": "…", "pid": 7, "started": "…", "command": "bert-jax train …",
     "since": "2026-11-23 08:14:30 UTC", "renewed": "…", "token": "…"}

Its holder renews it every `HEARTBEAT_SECONDS`. Where a process finds the file, it decides so:

- The holder is a process of this machine: it runs, or not. After a kill, the next call starts at
  once.
- The holder is on another machine or in another container: it runs if the file changes within
  `STALE_SECONDS`. Times of different hosts are not compared.

A holder that did not renew its lock in time, such as a suspended process, finds out by
`check_locks` that another process has taken it over.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import secrets
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_jax.errors import RetryableError, UnreachableError, UserError
from bert_jax.files.paths import filesystem, is_remote, reachable
from bert_jax.files.processes import ProcessIdentity, this_process
from bert_jax.files.reading import open_own
from bert_jax.standard_streams import say

NAME = ".bert_jax.lock"
HEARTBEAT_SECONDS = 20.0
STALE_SECONDS = 90.0
# How long the file of a lock may be empty, between its creation and its content.
_CREATION_SECONDS = 2.0
# How long a bucket takes at most to store a small file that has been sent.
_SETTLE_SECONDS = 2.0


@contextlib.contextmanager
def locked(path: Path, *, inside: bool = False) -> Iterator[None]:
    """Holds the lock on a directory or file that is written within the block.

    Below a directory, or a `DIRECTORY.partial`, that this process has locked, nothing is locked
    again. With several hosts, only the main one calls it.

    Args:
        path: what is written, local or in a bucket; it need not exist.
        inside: whether the lock is a file in the directory `path`, which is made for it; if not,
            it is beside `path`, which then can be moved as a whole.

    Raises:
        UserError: another process holds it, or the file of the lock cannot be written.
        RetryableError: see `check_locks`.
    """
    path = path if is_remote(path) else path.resolve()
    if not inside and any(_name_of(parent) in _held for parent in path.parents):
        yield
        return
    lock = _Lock(path, path / NAME if inside else path.with_name(f".{path.name}{NAME}"))
    _tokens.add(lock.token)
    try:
        lock.acquire()
        yield
    finally:
        lock.release()
        _tokens.discard(lock.token)


def check_locks() -> None:
    """Checks that this process still has its locks; for moments before something is written.

    Raises:
        RetryableError: another process has taken one over, as this one did not renew it in time.
    """
    for lock in list(_held.values()):
        lock.check()


@contextlib.contextmanager
def guarded(directory: Path) -> Iterator[None]:
    """Waits until no other process changes a local directory's manifest; within it, none does."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _guard(descriptor)
        yield
    finally:
        os.close(descriptor)


@dataclasses.dataclass(frozen=True)
class _Record:
    """The content of the file of a lock."""

    process: ProcessIdentity
    command: str
    since: str
    renewed: str
    token: str

    def as_bytes(self) -> bytes:
        fields = dataclasses.asdict(self)
        return (json.dumps({**fields.pop("process"), **fields}) + "\n").encode()

    @classmethod
    def parse(cls, content: bytes, file: Path) -> "_Record":
        """Raises UserError if the file is something else."""
        try:
            fields = json.loads(content)
            names = [field.name for field in dataclasses.fields(ProcessIdentity)]
            process = ProcessIdentity(**{name: fields.pop(name) for name in names})
            if not (type(process.pid) is int and 0 < process.pid < 2**31):
                raise ValueError(f"the process {process.pid}")
            texts = process.host, process.machine, process.started, *fields.values()
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("a field is no text")
            return cls(process, **fields)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{file} is not a lock of bert-jax, or damaged; remove it if no other bert-jax "
                "is writing there"
            ) from error

    def __str__(self) -> str:
        process = self.process
        return f"process {process.pid} on {process.host} ({self.command}), since {self.since}"


class _Lock:
    """The lock of this process on `path`."""

    def __init__(self, path: Path, file: Path) -> None:
        self._path, self._file = path, file
        program = Path(sys.argv[0])
        name = program.parent.name if program.stem == "__main__" else program.name
        command = shlex.join([name, *sys.argv[1:2]])[:100]
        self.token = secrets.token_hex(8)
        self._record = _Record(this_process(), command, _now(), _now(), self.token)
        self._lost: UserError | None = None
        self._tried = time.time()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, daemon=True)

    def acquire(self) -> None:
        """Raises UserError if another process holds the lock."""
        try:
            with reachable(self._path):
                if not is_remote(self._file) and not self._file.parent.exists():
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                while not _create(self._file, self._record.as_bytes()):
                    if self._take_over():
                        break
        except OSError as error:
            raise UserError(
                f"cannot write {self._path}: {error.strerror or error} ({error.filename}); fix "
                "that, or give another place"
            ) from error
        self._thread.start()
        _held[_name_of(self._path)] = self

    def release(self) -> None:
        """Removes the file, unless another process has taken the lock over."""
        if not self._thread.ident or self._record.process.pid != os.getpid():
            return  # never acquired, or this is a fork of the holder
        self._released.set()
        self._thread.join()
        _held.pop(_name_of(self._path), None)
        # The next holder sees that this process has ended, or waits until the lock is stale.
        with contextlib.suppress(OSError, UserError), reachable(self._path):
            _replace(self._file, self._is_mine, None)

    def check(self) -> None:
        """Raises RetryableError if another process has taken the lock over."""
        if time.time() - self._tried > STALE_SECONDS:
            self._renew()  # the process was suspended
        if self._lost is not None:
            raise self._lost

    def _take_over(self) -> bool:
        """Takes the lock of a process that has ended; False if the file has changed meanwhile."""
        found = _read(self._file)
        if not found:  # removed now, or created now
            return found == b"" and not self._changes(found, _CREATION_SECONDS) and self._put(found)
        record = _Record.parse(found, self._file)
        process = record.process
        if process == self._record.process:
            is_running = record.token in _tokens
        elif process.is_local:
            is_running = process.is_running
        else:
            say(
                f"bert-jax: {self._path} is locked by {record}; waiting for {STALE_SECONDS:.0f} s "
                "to see whether that still runs"
            )
            is_running = self._changes(found, STALE_SECONDS)
            if is_running and _read(self._file) is None:
                return False  # it has just ended
        if is_running:
            raise UserError(
                f"{self._path} is being written by {record}; wait for it, end it, or give another "
                "place"
            )
        return self._put(found)

    def _put(self, found: bytes) -> bool:
        """Replaces a file with this content; False if it has changed."""
        if not _replace(self._file, found.__eq__, self._record.as_bytes()):
            return False
        if is_remote(self._file):
            time.sleep(_SETTLE_SECONDS)  # of two that take it over at once, the last one has it
        return self._is_mine(_read(self._file) or b"")

    def _changes(self, found: bytes, seconds: float) -> bool:
        """Waits until the file changes, at most so long; returns whether it has changed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(seconds / 20, 5.0))
            if _read(self._file) != found:
                return True
        return False

    def _keep_renewing(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            self._renew()

    def _renew(self) -> None:
        self._tried = time.time()
        content = dataclasses.replace(self._record, renewed=_now()).as_bytes()
        try:
            with reachable(self._path):
                found = _read(self._file)
                if found is None:
                    _create(self._file, content)  # somebody has removed it
                elif not _replace(self._file, self._is_mine, content):
                    self._lost = self._loss(found)
        except (OSError, UnreachableError):
            pass  # the next time is soon
        except UserError as error:
            self._lost = error

    def _loss(self, found: bytes) -> UserError:
        holder = _Record.parse(found, self._file)
        return RetryableError(
            f"{self._path} was taken over by {holder}, while this process did not respond for "
            f"{STALE_SECONDS:.0f} s; run the same command again when that has ended"
        )

    def _is_mine(self, content: bytes) -> bool:
        return f'"token": "{self.token}"'.encode() in content


# The locks of this process, by `_name_of` what they protect; and their tokens, also while they are
# being acquired. A record of this process with another token was left by an interruption.
_held: dict[str, _Lock] = {}
_tokens: set[str] = set()


def _name_of(path: Path) -> str:
    return os.fspath(path).removesuffix(".partial")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# The file of a lock. Each function is atomic on a local disk; in a bucket, creation is.


def _create(file: Path, content: bytes) -> bool:
    """Creates a file; False if it exists."""
    if is_remote(file):
        store, name = filesystem(file)
        try:
            store.pipe_file(name, content, mode="create")
        except FileExistsError:
            return False
        return True
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    try:
        with open(descriptor, "wb", buffering=0) as stream:
            _guard(descriptor)
            stream.write(content)
    except OSError:
        file.unlink(missing_ok=True)
        raise
    return True


def _read(file: Path) -> bytes | None:
    """The content of a file; None if there is none."""
    try:
        if is_remote(file):
            store, name = filesystem(file)
            return bytes(store.cat_file(name))
        with _opened(file, os.O_RDONLY) as descriptor:
            return os.read(descriptor, 1 << 16)
    except FileNotFoundError:
        return None


def _replace(file: Path, accepts: Callable[[bytes], bool], content: bytes | None) -> bool:
    """Replaces (None: removes) a file whose content is accepted; False if it is another one."""
    if is_remote(file):
        if not accepts(_read(file) or b""):
            return False
        store, name = filesystem(file)
        store.rm_file(name) if content is None else store.pipe_file(name, content)
        return True
    try:
        with _opened(file, os.O_RDWR) as descriptor:
            # Another process may have removed it before it could be guarded.
            if not os.fstat(descriptor).st_nlink or not accepts(os.read(descriptor, 1 << 16)):
                return False
            if content is None:
                file.unlink()
            else:  # in place: a full disk has room for it
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))
            return True
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _opened(file: Path, mode: int) -> Iterator[int]:
    """Opens and guards a local file; see `open_own`."""
    descriptor = open_own(file, mode)
    try:
        _guard(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _guard(descriptor: int) -> None:
    """Waits until no other process has the file or directory; until it is closed, none has."""
    with contextlib.suppress(OSError):  # some network file systems cannot do it
        fcntl.flock(descriptor, fcntl.LOCK_EX)
