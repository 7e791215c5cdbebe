"""`text:PATTERN` and `jsonl:PATTERN`: documents of files that match a pattern."""

import copy
import glob
import html
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bert_jax.data.pretraining.sources import (
    Block,
    Source,
    SourceSpec,
    blocks_of,
    document_blocks,
)
from bert_jax.data.readers.json_objects import parse_object, values
from bert_jax.data.readers.lines import Lines, decompress, named_errors, uncompressed_name
from bert_jax.data.readers.tables import string_field
from bert_jax.errors import OptionError
from bert_jax.files import is_remote, matching_files, open_binary, reachable, state_of
from bert_jax.files.paths import FileState

REMEDY = "convert the file, or set {data.errors=replace} to read U+FFFD in its place"


class FileSource(Source):
    """A source that reads files line by line.

    Attributes:
        paths: paths of the files, in reading order.
    """

    def __init__(self, spec: SourceSpec, pattern: str):
        super().__init__(spec, 0)
        self._set_files({path: state_of(path) for path in find_files(pattern, spec)})

    def _set_files(self, states: dict[Path, FileState]) -> None:
        self.paths, self._states = list(states), states
        starts = itertools.accumulate(self.piece_sizes, initial=0)
        # Total bytes of the files before each one.
        self._starts = dict(zip(states, starts, strict=False))
        self.size = sum(self.piece_sizes)

    @property
    def piece_sizes(self) -> list[int]:
        """The pieces are the files."""
        return [state.size for state in self._states.values()]

    def pieces(self, start: int, stop: int) -> "FileSource":
        part = copy.copy(self)
        part._set_files(dict(list(self._states.items())[start:stop]))
        return part

    def identity(self) -> dict[str, object]:
        """Name, size and modification time (ns) of every file."""
        return {
            "files": [
                [str(path), state.size, state.modified] for path, state in self._states.items()
            ]
        }

    def numbered_lines(self, path: Path) -> Iterator[tuple[int, str]]:
        """Lines of one of the files, without line ends, counted from 1.

        A byte order mark is dropped. Updates `position`.

        Raises:
            UserError: a file is unreadable or damaged, has undecodable bytes, or a line above the
                limit.
        """
        with reachable(path), named_errors(path), open_binary(path) as raw:
            lines = Lines(
                str(path), decompress(raw), errors=self.spec.errors, remedy=REMEDY, is_file=True
            )
            for number, text in lines:
                yield number, text.rstrip("\r\n")
                self.position = self._starts[path] + raw.tell()


def find_files(pattern: str, spec: SourceSpec) -> list[Path]:
    """The files of a file name, a directory (all files below it) or a glob pattern.

    Sorted by path; hidden files and folders in directories are left out, and a file that matches
    twice is included once.

    Raises:
        OptionError: there are no such files.
    """
    if not pattern:
        raise spec.error("it names no file, directory or pattern")
    path = os.path.expanduser(pattern)
    if is_remote(path):
        if remote := matching_files(path):
            return remote
        raise spec.error(f"{pattern} matches no file")
    # An existing name is not a pattern, even with [brackets] in it.
    matches = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    if not matches:
        what = "matches no file" if glob.has_magic(path) else "does not exist"
        raise spec.error(f"{pattern} {what} (in {os.getcwd()})")
    files = {file for match in matches for file in _files_below(Path(match))}
    if not files:
        raise spec.error(f"there is no file in {pattern}")
    return sorted(files)


def _files_below(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder, name) for name in files if not name.startswith("."))


_DOCUMENT_TAG = re.compile(r"<doc(\s[^<>]*)?>$")
_TITLE = re.compile(r'\btitle="([^"]*)"')
# How JSON begins.
_JSON = re.compile(r'\{\s*("|$)|\[\s*(\{|$)')
_ENDINGS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "JSON"),
    **dict.fromkeys((".csv", ".tsv"), "a table"),
}


class TextSource(FileSource):
    """Documents of text files in one of three layouts (`SourceSpec.format`).

    Raises:
        OptionError: a file has the ending of JSON or of a table; or, during iteration, begins like
            JSON. The layout "bert" reads both as text, "lines" a table.
    """

    def __init__(self, spec: SourceSpec, pattern: str):
        super().__init__(spec, pattern)
        for path in self.paths:
            self._check_is_prose(path, _ENDINGS.get(Path(uncompressed_name(path)).suffix, ""))

    def blocks(self) -> Iterator[Block]:
        for path in self.paths:
            layout = self.spec.format
            first = next(
                (line for _, line in self.numbered_lines(path) if line.strip()), ""
            ).strip()
            self._check_is_prose(path, "JSON" if _JSON.match(first) else "")
            if layout == "auto":
                layout = "wikiextractor" if _DOCUMENT_TAG.match(first) else "bert"
            is_tagged = layout == "wikiextractor"
            yield from blocks_of(
                self._tagged_lines(path) if is_tagged else self._lines(path, layout == "lines")
            )

    def _check_is_prose(self, path: Path, what: str) -> None:
        """Raises OptionError for a file that looks like something else than prose."""
        as_text = ("bert",) if what == "JSON" else ("bert", "lines")
        if what and self.spec.format not in as_text:
            pattern = self.spec.source.partition(":")[2]
            rule = f"read JSON lines as jsonl:{pattern}" if what == "JSON" else "write JSON lines"
            raise OptionError(
                "data.source",
                self.spec.source,
                f"{rule}, or set {{data.format={as_text[-1]}}} if it is plain text",
                f"{path} looks like {what}, not like prose",
            )

    def _lines(self, path: Path, one_per_line: bool) -> Iterator[str | None]:
        """Lines, and None after each document: after every line, or where a line is blank."""
        for _, line in self.numbered_lines(path):
            yield line
            if one_per_line or not line.strip():
                yield None

    def _tagged_lines(self, path: Path) -> Iterator[str | None]:
        """Lines of documents in WikiExtractor's `<doc id=… title=…>` … `</doc>`; None at each tag.

        The title, which the first line repeats, is left out, so that a redirect or a stub without
        text is not a document.
        """
        inside, title = False, ""
        for number, line in self.numbered_lines(path):
            stripped = line.strip()
            if tag := _DOCUMENT_TAG.match(stripped):
                attribute = _TITLE.search(tag.group(1) or "")
                inside, title = True, html.unescape(attribute.group(1)) if attribute else ""
                yield None
            elif stripped == "</doc>":
                inside = False
                yield None
            elif stripped and not inside:
                raise OptionError(
                    "data.format",
                    self.spec.format,
                    "set {data.format=bert} to read the file as plain text",
                    problem=f"{path}:{number}: text outside of <doc …> and </doc>",
                )
            elif stripped:
                if stripped != title:
                    yield line
                title = ""  # only the first line of text can be the title


class JsonLinesSource(FileSource):
    """JSON objects, one a line or in an array, each with a document in field `data.field`."""

    def blocks(self) -> Iterator[Block]:
        for path in self.paths:
            for number, value in values(str(path), self.numbered_lines(path)):
                text = self._text(value, path, number)
                yield from document_blocks(text, self.spec.paragraphs)

    def _text(self, line: str, path: Path, number: int) -> str:
        location = f"{path}:{number}"
        record = parse_object(line, location)
        self.spec.check_field(record, f"{location}:")
        text = string_field(record, self.spec.field, location)
        try:
            text.encode()
        except UnicodeEncodeError as error:  # half of a surrogate pair, "\\ud83d" in JSON
            if self.spec.errors == "strict":
                raise OptionError(
                    "data.errors",
                    self.spec.errors,
                    "set {data.errors=replace} to read ? in its place",
                    problem=f"{location}: field {self.spec.field!r} has half a surrogate pair at "
                    f"character {error.start + 1}",
                ) from error
            return text.encode(errors="replace").decode()
        return text
