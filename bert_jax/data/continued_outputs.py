"""Output files that a stopped program continues.

`continued_outputs` keeps the rows so far in a directory beside the output NAME, from which the next
call with the same request continues:

    NAME.partial/
      NAME, PREFIX_NAME …   rows; those beyond the recorded bytes are written again
      .record.json          request, number of rows, digest of their entries, and of each file the
                            bytes and their CRC-32
"""

import contextlib
import dataclasses
import functools
import glob
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.outputs import Layout, Outputs, TextFile, Written, named_errors, not_written
from bert_jax.errors import RetryableError, UserError
from bert_jax.files import (
    atomic_file,
    check_locks,
    check_own_files,
    locked,
    manifest_updated,
    write_atomically,
)
from bert_jax.options import differing_names
from bert_jax.standard_streams import say

_RECORD = ".record.json"
_RECORD_SECONDS = 5.0
_BLOCK_BYTES = 1 << 20

_Request = Callable[[], Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class _Mark:
    """A state from which an output can be continued.

    Attributes:
        rows: number of rows.
        digest: digest of the entries of these rows.
        files: the state of each file, by prefix.
    """

    rows: int = 0
    digest: str = ""
    files: Mapping[str, Written] = dataclasses.field(default_factory=dict)


class ContinuedOutputs(Outputs):
    """The files of an output in its directory of unfinished files.

    Attributes:
        directory: the directory.
        rows: number of rows that an earlier call has written.
        digest: digest of the entries of these rows, as it was given to `mark`.
    """

    def __init__(self, target: Path, layouts: Sequence[Layout], request: _Request | None) -> None:
        """For internal use; `continued_outputs` makes outputs."""
        self.directory = target.with_name(f"{target.name}.partial")
        self._target = target
        self._request = request and functools.cache(request)  # it adds up all parameters
        self._recorded = self._marked = _read_record(self.directory, self._request, layouts, target)
        self._recorded_at = time.monotonic()
        self.rows, self.digest = self._recorded.rows, self._recorded.digest
        super().__init__(layouts, self._open)
        for prefix in self._recorded.files:
            if prefix not in self.files:
                self.files[prefix] = self._open(self.layouts[prefix])

    @property
    def kept(self) -> int:
        """The number of rows that a later call need not write again."""
        return self._marked.rows

    def mark(self, rows: int, digest: str) -> None:
        """Says that the output can be continued from here; recorded from time to time.

        Args:
            rows: number of rows so far.
            digest: digest of their entries.
        """
        if self._request is None:
            return
        files = {prefix: file.written for prefix, file in self.files.items()}
        self._marked = _Mark(rows, digest, files)
        if time.monotonic() - self._recorded_at >= _RECORD_SECONDS:
            self._record()

    def keep(self) -> None:
        """Records the last mark, or removes everything if there is none."""
        if not self.directory.exists():
            return  # everything is in its place
        try:
            check_locks()
        except RetryableError:
            return  # the files belong to the process that has taken the lock over
        if self._marked is not self._recorded:
            with contextlib.suppress(UserError):  # the error that ended the call comes first
                self._record()
        for file in self.files.values():
            file.close()
        if not self._recorded.rows:
            shutil.rmtree(self.directory)
        self._marked = self._recorded

    def publish(self) -> None:
        """Moves the complete files to their places, the output itself at last."""
        check_locks()
        self.end_all()
        for file in self.files.values():
            file.flush(to_disk=True)
        paths = {prefix: self.layouts[prefix].path(self._target) for prefix in self.files}
        names = [path.name for path in paths.values()]
        with manifest_updated(self.directory, self._target.parent, names):
            for prefix, path in paths.items():
                if prefix:  # a copy: until the last move, everything can be continued
                    self._copy(path)
            (self.directory / self._target.name).replace(self._target)
            shutil.rmtree(self.directory)
        for file in self.files.values():
            file.close()

    def _copy(self, path: Path) -> None:
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
            left.unlink()  # by a copy that was killed
        with atomic_file(path) as copy, (self.directory / path.name).open("rb") as original:
            shutil.copyfileobj(original, copy, _BLOCK_BYTES)

    def _open(self, layout: Layout) -> TextFile:
        path = self.directory / layout.path(self._target).name
        written = self._recorded.files.get(layout.prefix, Written())
        with named_errors(str(path)):
            stream = path.open("ab")
            stream.truncate(written.bytes)
        return TextFile(str(path), layout, stream, written)

    def _record(self) -> None:
        check_locks()
        for file in self.files.values():
            file.flush(to_disk=True)
        assert self._request is not None  # else nothing is marked
        content = {"request": self._request(), **dataclasses.asdict(self._marked)}
        write_atomically(self.directory / _RECORD, json.dumps(content, indent=1).encode())
        self._recorded, self._recorded_at = self._marked, time.monotonic()


@contextlib.contextmanager
def continued_outputs(
    target: Path, layouts: Sequence[Layout], request: _Request | None
) -> Iterator[ContinuedOutputs]:
    """Opens files that a later call continues if this one is stopped or killed.

    They appear in their places at the end, and are listed there, see `files.manifest`: only files
    of earlier calls are replaced. After an error, the rows up to the last mark are kept.

    Args:
        target: path of the output, a regular file of this machine or none.
        layouts: see `open_outputs`.
        request: returns everything that the rows depend on, except the input, as values of JSON;
            None: the input cannot be read again, and nothing is kept after an error.

    Raises:
        UserError: another process writes the same output, the directory has rows of another
            request or is damaged, or a file cannot be written or is not from bert_jax.
    """
    target = Path(os.path.realpath(target))  # a link is kept
    names = {layout.path(target).name for layout in layouts}
    directory = target.with_name(f"{target.name}.partial")
    with contextlib.ExitStack() as stack:
        try:
            check_own_files(target.parent, names)
            _check_files(directory, names)
            stack.enter_context(locked(directory, inside=True))
            outputs = ContinuedOutputs(target, layouts, request)
            try:
                yield outputs
                outputs.publish()
            except BaseException as error:
                outputs.keep()
                if outputs.kept and isinstance(error, UserError):
                    say(
                        f"{directory} keeps {outputs.kept:,} predictions; the same command "
                        "continues after them"
                    )
                raise
        except OSError as error:
            raise not_written(str(target), error) from error


def _check_files(directory: Path, names: set[str]) -> None:
    """Refuses a directory of unfinished files that has other files, or is a file.

    Raises:
        UserError: it has.
    """
    if directory.is_dir():
        others = [
            path.name
            for path in directory.iterdir()
            if path.name not in names and not path.name.startswith(".")
        ]
    else:
        others = [directory.name] if directory.exists() else []
    if others:
        raise foreign_file(directory, sorted(others)[0], "predictions")


def foreign_file(directory: Path, name: str, content: str) -> UserError:
    """The error for a file of others among unfinished predictions or outputs."""
    return UserError(
        f"{directory} is for unfinished {content}, but has {name!r}; move it away, or give another "
        "output"
    )


def check_same_request(
    directory: Path, content: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Refuses to continue what another request has begun.

    Args:
        directory: directory of unfinished files.
        content: what it has, such as "4 predictions".
        then: the request that it belongs to, as values of JSON.
        now: the present one.

    Raises:
        UserError: they differ.
    """
    if changed := differing_names(then, json.loads(json.dumps(now))):
        raise UserError(
            f"{directory} has {content} of another request (other {', '.join(changed)}); repeat "
            f"that request, {start_anew(directory)}"
        )


def start_anew(directory: Path) -> str:
    """The remedy where a directory of unfinished files cannot be continued."""
    return f"remove {directory} to start anew, or give another output"


def _read_record(
    directory: Path,
    request: _Request | None,
    layouts: Sequence[Layout],
    target: Path,
) -> _Mark:
    """The state to continue from; that of an empty output if nothing is recorded.

    Raises:
        UserError: it belongs to another request, or the files are not as recorded.
    """
    path = directory / _RECORD
    if not path.exists():
        return _Mark()
    remedy = start_anew(directory)
    try:
        content = json.loads(path.read_bytes())
        recorded = content["request"]
        files = {prefix: Written(**written) for prefix, written in content["files"].items()}
        mark = _Mark(int(content["rows"]), str(content["digest"]), files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged; {remedy}") from error
    if request is None:
        raise UserError(f"{directory} has {mark.rows:,} predictions of another input; {remedy}")
    check_same_request(directory, f"{mark.rows:,} predictions", recorded, request())
    paths = {layout.prefix: directory / layout.path(target).name for layout in layouts}
    for prefix, written in files.items():
        if prefix not in paths or not _is_as_recorded(paths[prefix], written):
            raise UserError(f"{paths.get(prefix, path)} is damaged; {remedy}")
    return mark


def _is_as_recorded(path: Path, written: Written) -> bool:
    left, crc = written.bytes, 0
    if not path.is_file():
        return False
    with path.open("rb") as file:
        while left and (block := file.read(min(left, _BLOCK_BYTES))):
            left, crc = left - len(block), zlib.crc32(block, crc)
    return not left and crc == written.crc
