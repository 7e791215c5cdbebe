"""Files and directories that are replaced whole: after a crash there is the old one or the new one.

All of them are written under a hidden name beside the target, `.NAME.….partial`, and renamed at
the end. A bucket needs no rename: it stores a whole object or none.
"""

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from bert_jax.errors import UserError
from bert_jax.files.paths import is_remote, reachable, upload


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing that replaces `path` at the end; after an error `path` is unchanged.

    A symbolic link stays one: the file that it points to is replaced. What is no regular file
    (/dev/null, a named pipe) is written directly. In a bucket, the content is uploaded at the end.

    Raises:
        UserError: the file cannot be written (full disk, no permission, store not reached).
        BrokenPipeError: the reader of a named pipe has closed it.
    """
    if is_remote(path):
        content = io.BytesIO()
        yield content
        with reachable(path):
            path.write_bytes(content.getvalue())
        return
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        with replaced(target) as partial, partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another place"
        ) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a whole file; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(content)


def save_figure(path: Path, figure: Any, dpi: int = 120) -> None:
    """Writes a figure of matplotlib as a PNG picture; see `atomic_file`."""
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=dpi)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A hidden name beside a local file, to write the new content to; renamed at the end.

    The name is of this process alone, so two processes never write to one file.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial_files(directory: Path) -> None:
    """Removes what killed processes have left of `atomic_file`, in a local directory and below."""
    for path in directory.rglob(".*.partial"):
        path.unlink()


@contextlib.contextmanager
def atomic_directory(
    directory: Path, *, marker: str = "", last: str = "", obsolete: Sequence[str] = ()
) -> Iterator[Path]:
    """A local directory to write files to, which are moved (or uploaded) to `directory` at the end.

    Other files in `directory` stay, as a model card. After an error in the body, it is unchanged.
    The moves themselves are one per file, that of `last` at the end: with `last` in it, a directory
    is complete.

    Args:
        directory: local or in a bucket; made if it is missing.
        marker: a file that each directory of this kind has: a directory with other files, but
            without this one, is refused. "" accepts every directory.
        last: name of the file that is moved last. The old one is removed first.
        obsolete: patterns of old files that are removed, too.

    Raises:
        UserError: the directory holds something else, or cannot be written.
    """
    if not is_remote(directory):
        directory = directory.resolve()
    with reachable(directory):
        if directory.exists() and not directory.is_dir():
            raise UserError(f"{directory} is a file; give a directory")
        is_used = directory.is_dir() and any(directory.iterdir())
        if marker and is_used and not (directory / marker).is_file():
            raise UserError(
                f"{directory} holds other files and no {marker}; give another directory"
            )
    obsolete = (last, *obsolete) if last else obsolete
    if is_remote(directory):
        with tempfile.TemporaryDirectory(prefix="bert-jax-") as folder:
            yield Path(folder)
            with reachable(directory):
                _remove_matching(directory, obsolete)
            upload(Path(folder), directory, _file_names(Path(folder), last))
        return
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir(parents=True)
        yield partial
        _move(partial, directory, last, obsolete)
    except OSError as error:
        raise UserError(
            f"cannot write {directory}: {error.strerror or error}; free space or give another "
            "directory"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move(partial: Path, directory: Path, last: str, obsolete: Sequence[str]) -> None:
    names = _file_names(partial, last)
    if not last and not directory.exists():
        partial.rename(directory)  # at once: there is nothing to keep
        return
    for name in names:
        if (directory / name).is_dir():
            raise UserError(f"{directory / name} is a directory; move it away")
    directory.mkdir(exist_ok=True)
    _remove_matching(directory, obsolete)
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).replace(directory / name)


def _file_names(directory: Path, last: str) -> list[str]:
    """Names of all files below a local directory, sorted, `last` at the end."""
    files = (path for path in directory.rglob("*") if path.is_file())
    names = sorted(path.relative_to(directory).as_posix() for path in files)
    return sorted(names, key=lambda name: name == last)


def _remove_matching(directory: Path, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for path in directory.glob(pattern):
            if path.is_file():
                path.unlink()
