"""Files of a source: found by pattern, and read line by line."""

import copy
import glob
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.pretraining.sources.source import Source, SourceSpec
from bert_jax.data.readers.compressed import decompress, named_errors
from bert_jax.data.readers.lines import Lines
from bert_jax.errors import UserError
from bert_jax.files import is_remote, matching_files, open_binary, reachable, state_of

REMEDY = "convert the file, or set data.errors=replace to read U+FFFD in its place"


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
        with reachable(path), named_errors(path), open_binary(path) as raw:
            lines = Lines(str(path), decompress(raw), errors=self.spec.errors, remedy=REMEDY)
            for number, text in lines:
                yield number, text.rstrip("\r\n")
                self.position = self._starts[path] + raw.tell()


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
