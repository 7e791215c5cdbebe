"""Output files that are complete or do not exist; rows of JSON or other text.

An output that a stopped program continues is in a directory NAME.partial beside it until it is
complete, with a record of how far it goes, see `files.journal`.
"""

import contextlib
import dataclasses
import glob
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import (
    Journal,
    Request,
    atomic_file,
    check_own_files,
    continued,
    is_remote,
    manifest_updated,
    not_written,
)
from bert_jax.files.journal import RECORD

STDOUT = "-"

# `json.dumps` makes an encoder for each call.
_encode = json.JSONEncoder(ensure_ascii=False).encode


class _ReaderGoneError(UserError):
    """The reader of a pipe has stopped, such as `head` in `| head`."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """A file of an output.

    Attributes:
        prefix: the file's name is PREFIX_NAME, beside the output NAME; "": the output itself. A
            file with a prefix is written only if the output is a regular file.
        head: text before the first row.
        separator: text between two rows.
        tail: text after the last row.
        empty: content if there are no rows; None: the file is not written.
        ending: ending of the file's name; "": that of the output.
        convert: (the rows, file) → writes them in the format of the file; None: they are the file.
            Only a regular file is converted.
    """

    prefix: str = ""
    head: str = ""
    separator: str = ""
    tail: str = ""
    empty: str | None = ""
    ending: str = ""
    convert: Callable[[Path, BinaryIO], None] | None = None

    def path(self, target: Path) -> Path:
        """The path of the file, for the path of the output."""
        named = target.with_suffix(self.ending) if self.ending else target
        return named.with_name(f"{self.prefix}_{named.name}") if self.prefix else named


class TextFile:
    """A file that is being written."""

    def __init__(
        self, name: str, layout: Layout, stream: BinaryIO, *, is_begun: bool = False
    ) -> None:
        """Args: `is_begun`: whether the stream has rows already and is at their end."""
        self._name, self._layout, self._stream = name, layout, stream
        self._is_begun = is_begun

    def write_row(self, text: str) -> None:
        """Writes a row, after the head or a separator.

        Raises:
            UserError: it cannot be written; also in `end` and `flush`.
        """
        layout = self._layout
        self._write((layout.separator if self._is_begun else layout.head) + text)

    def end(self) -> None:
        """Writes what comes after the last row."""
        self._write(self._layout.tail if self._is_begun else self._layout.empty or "")

    def flush(self) -> None:
        """Gives everything to the operating system."""
        with _named_errors(self._name):
            self._stream.flush()

    def _write(self, text: str) -> None:
        with _named_errors(self._name):
            self._stream.write(text.encode())
        self._is_begun |= bool(text)


_Open = Callable[[Layout], TextFile]


class Outputs:
    """The files of an output, written together.

    Attributes:
        layouts: the layouts by prefix.
        files: the files that are written so far, by prefix.
        rows: number of rows that an earlier call has written.
        digest: digest of the examples of these rows, from the last `mark`.
        bad_rows: what became of bad rows among them, see `mark`.
        directory: directory of the unfinished files; None: the output cannot be continued.
    """

    rows: int = 0
    digest: str = ""
    bad_rows: str = ""
    directory: Path | None = None

    def __init__(
        self, layouts: Sequence[Layout], open_file: _Open, *, flushes: bool = False
    ) -> None:
        """For internal use; `open_outputs` and `resumable_outputs` make outputs."""
        self.layouts = {layout.prefix: layout for layout in layouts}
        self._open_file = open_file
        self._flushes = flushes
        self.files = {
            layout.prefix: open_file(layout) for layout in layouts if layout.empty is not None
        }

    def takes(self, prefix: str) -> bool:
        """Whether there is a file of this prefix: a stream has none beside it."""
        return prefix in self.layouts

    def write(self, prefix: str, text: str) -> None:
        """Writes a row to a file; on a pipe it is flushed at once.

        Raises:
            UserError: the text cannot be written.
        """
        if prefix not in self.files:
            self.files[prefix] = self._open_file(self.layouts[prefix])
        self.files[prefix].write_row(text)
        if self._flushes:
            self.files[prefix].flush()

    def end_all(self) -> None:
        """Writes what comes after the last row of each file."""
        for file in self.files.values():
            file.end()
            file.flush()

    @property
    def kept(self) -> int:
        """The number of rows that a later call need not write again."""
        return 0

    def mark(self, rows: int, digest: str, bad_rows: str = "") -> None:
        """Says that the output can be continued from here; recorded from time to time, if it can.

        Args:
            rows: number of rows so far.
            digest: digest of their examples.
            bad_rows: what became of bad rows among them; "": there is none.
        """


class _ResumableOutputs(Outputs):
    """The files of an output in its directory of unfinished files."""

    def __init__(self, target: Path, layouts: Sequence[Layout], journal: Journal) -> None:
        # Where no file is recorded, there are no rows, whatever their count says.
        self.rows = journal.count if journal.files else 0
        self.digest = journal.state.get("digest", "")
        self.directory = journal.directory
        self.bad_rows = journal.state.get("bad_rows", "")
        if not type(self.digest) is type(self.bad_rows) is str:
            raise journal.damaged(RECORD)
        self._target, self._journal = target, journal
        super().__init__(layouts, self._open)
        for prefix, layout in self.layouts.items():
            if prefix not in self.files and layout.path(target).name in journal.files:
                self.files[prefix] = self._open(layout)

    @property
    def kept(self) -> int:
        return self._journal.count

    def mark(self, rows: int, digest: str, bad_rows: str = "") -> None:
        self._journal.mark(rows, {"digest": digest, "bad_rows": bad_rows})

    def publish(self) -> None:
        """Moves the complete files to their final names, the output itself last."""
        self.end_all()
        self._journal.sync()
        directory = self._journal.directory
        layouts = {self.layouts[prefix].path(self._target).name: self.layouts[prefix]
                   for prefix in self.files}  # fmt: skip
        with manifest_updated(directory, self._target.parent, list(layouts)):
            for name in sorted(layouts, key=self._target.name.__eq__):
                convert, path = layouts[name].convert, self._target.with_name(name)
                if convert is None:
                    (directory / name).replace(path)
                else:
                    with atomic_file(path) as file:
                        convert(directory / name, file)

    def _open(self, layout: Layout) -> TextFile:
        path = self._journal.directory / layout.path(self._target).name
        file = self._journal.open(path.name)
        return TextFile(str(path), layout, file, is_begun=file.size > 0)


def check_output(target: str | Path, sources: Iterable[str | Path | None]) -> None:
    """Checks an output before anything is computed for it.

    Args:
        target: path of the output, or "-".
        sources: all inputs, of which none may be the output; None of one that is not given.

    Raises:
        UserError: the output is an input, or cannot be created.
    """
    if is_remote(target):
        raise UserError(f"{target}: an output is on this machine; copy the file afterwards")
    if str(target) == STDOUT:
        return
    path = Path(target)
    if not path.resolve().parent.is_dir():
        raise UserError(f"{path.parent} is not a directory; make it, or give another output")
    existing = [source for source in sources if source and Path(source).exists()]
    if path.exists() and any(map(path.samefile, existing)):
        raise UserError(f"{target} is input and output; give another output")


@contextlib.contextmanager
def open_outputs(target: str | Path, layouts: Sequence[Layout]) -> Iterator[Outputs]:
    """Opens files that are complete or do not exist, or "-" for stdout.

    See `files.atomic_file`: after an error, older files of the same names are unchanged.

    Args:
        target: path of the output; the other files are beside it.
        layouts: the files, in the order in which they are written at the end, the output first.

    Raises:
        UserError: a file cannot be written, or is to be converted.
    """
    if any(layout.convert for layout in layouts):
        raise UserError(f"{target}: this format needs a regular file; give its path")
    if str(target) == STDOUT:
        with _quiet_exit():
            stdout = Outputs(
                layouts[:1],
                lambda layout: TextFile("stdout", layout, sys.stdout.buffer),
                flushes=True,
            )
            yield stdout
            stdout.end_all()
        return
    path = Path(target)
    is_file = _is_regular(path)
    with contextlib.ExitStack() as files:

        def open_file(layout: Layout) -> TextFile:
            name = layout.path(path)
            return TextFile(str(name), layout, files.enter_context(atomic_file(name)))

        try:
            outputs = Outputs(layouts if is_file else layouts[:1], open_file, flushes=not is_file)
            yield outputs
            outputs.end_all()
        except BrokenPipeError as error:
            raise _ReaderGoneError(f"{target}: its reader has stopped reading") from error


@contextlib.contextmanager
def resumable_outputs(
    target: str | Path, layouts: Sequence[Layout], request: Request | None
) -> Iterator[Outputs]:
    """Opens files that a later call continues if this one is stopped or killed.

    They get their final names at the end, and are listed there, see `files.manifest`: only files
    of earlier calls are replaced. After an error, the rows up to the last mark are kept. An output
    that is not a regular file cannot be continued, see `open_outputs`.

    Args:
        target: path of the output on this machine, or "-".
        layouts: see `open_outputs`.
        request: returns everything that the rows depend on, except the input; None: the input
            cannot be read again, and nothing is kept after an error.

    Raises:
        UserError: see `files.continued`; or a file cannot be written or is not from bert_jax.
    """
    if str(target) == STDOUT or not _is_regular(Path(target)):
        with open_outputs(target, layouts) as stream:
            yield stream
        return
    path = Path(os.path.realpath(target))  # a link is kept
    names = {layout.path(path).name for layout in layouts}
    directory, patterns = path.with_name(f"{path.name}.partial"), {*map(glob.escape, names)}
    try:
        check_own_files(path.parent, names)
        with continued(directory, patterns, "{:,} predictions", request) as journal:
            outputs = _ResumableOutputs(path, layouts, journal)
            yield outputs
            outputs.publish()
    except OSError as error:
        raise not_written(path, error) from error


def _is_regular(path: Path) -> bool:
    """Whether an output is, or becomes, a regular file: not /dev/null, nor a named pipe."""
    return path.is_file() or not path.exists()


@contextlib.contextmanager
def _quiet_exit() -> Iterator[None]:
    """Makes Python flush stdout to nowhere at its exit, after the reader has stopped."""
    try:
        yield
    except _ReaderGoneError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise


@contextlib.contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """Turns errors of writing into a UserError that names the file."""
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGoneError(f"{name}: its reader has stopped reading") from error
    except OSError as error:
        raise not_written(name, error) from error


def to_json(value: Any, name: str = "array") -> str:
    """JSON; a float32 of an array becomes the shortest decimal that parses to the same float32.

    Args:
        value: values of JSON and arrays; any iterable becomes a list.
        name: name of an array in the error; those in objects have their keys.

    Raises:
        UserError: an array has a value that is not finite.
    """
    if isinstance(value, np.ndarray):
        return _array_to_json(name, value)
    if isinstance(value, Mapping):
        entries = (f"{_encode(key)}: {to_json(part, key)}" for key, part in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return "[" + ", ".join(to_json(part, name) for part in value) + "]"
    return _encode(value)


def table_line(values: Iterable[Any]) -> str:
    """A line of a TSV file: texts with blanks for tabs and line ends, other values as JSON."""
    texts = (value if isinstance(value, str) else _in_cell(value) for value in values)
    return "\t".join(re.sub(r"[\t\r\n]", " ", text) for text in texts) + "\n"


def _in_cell(value: Any) -> str:
    return "" if value is None else _encode(value)


def float32_repr(number: float) -> float:
    """A float32 as the double that Python prints like the float32: 0.1, not 0.10000000149011612."""
    return float(str(np.float32(number)))


def _array_to_json(key: str, values: np.ndarray) -> str:
    if not np.isfinite(values).all():
        raise UserError(f"{key!r} is not finite; the parameters of the model are damaged")

    def nested(part: np.ndarray) -> str:
        items = map(str, part) if part.ndim == 1 else map(nested, part)
        return "[" + ", ".join(items) + "]"

    return nested(values)
