"""Output files that are complete or do not exist: text with something around its rows."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from bert_jax.errors import UserError
from bert_jax.files import atomic_file, not_written

STDOUT = "-"


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
    """

    prefix: str = ""
    head: str = ""
    separator: str = ""
    tail: str = ""
    empty: str | None = ""

    def path(self, target: Path) -> Path:
        """The path of the file, for the path of the output."""
        return target.with_name(f"{self.prefix}_{target.name}") if self.prefix else target


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
        with named_errors(self._name):
            self._stream.flush()

    def _write(self, text: str) -> None:
        with named_errors(self._name):
            self._stream.write(text.encode())
        self._is_begun |= bool(text)


_Open = Callable[[Layout], TextFile]


class Outputs:
    """The files of an output, written together.

    Attributes:
        layouts: the layouts by prefix.
        files: the files that are written so far, by prefix.
    """

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


@contextlib.contextmanager
def open_outputs(target: str | Path, layouts: Sequence[Layout]) -> Iterator[Outputs]:
    """Opens files that are complete or do not exist, or "-" for stdout.

    See `files.atomic_file`: after an error, older files of the same names are unchanged.

    Args:
        target: path of the output; the other files are beside it.
        layouts: the files, in the order in which they are written at the end, the output first.

    Raises:
        UserError: a file cannot be written.
    """
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
    is_file = is_regular(path)
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


def is_regular(path: Path) -> bool:
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
def named_errors(name: str) -> Iterator[None]:
    """Turns errors of writing into a UserError that names the file."""
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGoneError(f"{name}: its reader has stopped reading") from error
    except OSError as error:
        raise not_written(name, error) from error
