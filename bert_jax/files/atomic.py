"""Files and directories that are replaced atomically: a crash leaves the old or the new one.

They are written under a hidden name next to the target, `.NAME.….partial`, and renamed at the end.
A bucket needs no rename: it stores a complete object or none.
"""

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from bert_jax.errors import UserError
from bert_jax.files.lock import check_locks, guarded, locked
from bert_jax.files.manifest import (
    MANIFEST,
    Manifest,
    both,
    check_own_files,
    manifest_bytes,
    manifest_of,
    manifest_of_content,
    read_manifest,
)
from bert_jax.files.paths import is_remote, reachable, upload
from bert_jax.files.reading import check_regular


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing that replaces `path` at the end; after an error `path` is unchanged.

    A symbolic link is kept: the file that it points to is replaced. Anything that is not a regular
    file (/dev/null, a named pipe) is written directly. In a bucket, the content is uploaded at the
    end.

    Raises:
        UserError: the file cannot be written (full disk, no permission, unreachable store).
        BrokenPipeError: the reader of a named pipe has closed it.
    """
    if is_remote(path):
        content = io.BytesIO()
        yield content
        with reachable(path):
            path.write_bytes(content.getvalue())
        return
    try:
        if path.exists() and not path.is_file():  # also /dev/stdout: its target has no path
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        with replaced(target) as partial, partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: object, error: OSError, remedy: str = "choose another path") -> UserError:
    """The error of a file that cannot be written."""
    return UserError(f"cannot write {path}: {error.strerror or error}; free space or {remedy}")


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a whole file, which replaces nothing but a regular file; see `atomic_file`."""
    check_regular(path)
    with atomic_file(path) as file:
        file.write(content)


def write_listed(directory: Path, files: Mapping[str, bytes], manifest: str) -> None:
    """Writes files below a directory, and lists them in its manifest; see `check_undamaged`."""
    old, new = read_manifest(directory, manifest), Manifest()
    for name, content in files.items():
        check_regular(directory / name)  # before any of them is replaced
        new |= manifest_of_content(name, content)
        with reachable(directory):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / manifest, manifest_bytes(both(old, new)))
    for name, content in files.items():
        write_atomically(directory / name, content)
    write_atomically(directory / manifest, manifest_bytes(old | new))


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A hidden name next to a local file, for the new content; renamed at the end.

    The name is unique to this process, so two processes never write to the same file.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)  # of an earlier process with this number, or a link
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial_files(directory: Path) -> None:
    """Removes partial files of killed processes, in a local directory and below."""
    for path in directory.rglob(".*.partial"):
        if path.is_file():  # a directory is removed by the next `atomic_directory`
            path.unlink()


@contextlib.contextmanager
def atomic_directory(
    directory: Path, *, marker: str = "", last: str = "", obsolete: Sequence[str] = ()
) -> Iterator[Path]:
    """A local directory for new files, which are moved (or uploaded) to `directory` at the end.

    Other files in `directory` are kept, such as a model card. After an error in the body, it is
    unchanged. The files are moved one by one, `last` at the end: a directory that contains `last`
    is complete. Another process cannot write it at the same time, see `lock`.

    Args:
        directory: target directory, local or in a bucket; created if missing.
        marker: name of a file in every directory of this kind: a directory with other files, but
            without this one, is refused, and only files that bert_jax wrote are replaced or
            removed, see `files.manifest`; it may be the manifest itself. "" accepts every
            directory.
        last: name of the file that is moved last. The old one is removed first.
        obsolete: patterns of old files that are removed, too.

    Raises:
        UserError: the directory contains something else, is being written, or cannot be written.
    """
    if not is_remote(directory):
        directory = directory.resolve()
    with locked(directory), _replaced_directory(directory, marker, last, obsolete) as partial:
        yield partial


@contextlib.contextmanager
def _replaced_directory(
    directory: Path, marker: str, last: str, obsolete: Sequence[str]
) -> Iterator[Path]:
    """`atomic_directory` without the lock; the path is absolute."""
    with reachable(directory):
        if directory.exists() and not directory.is_dir():
            raise UserError(f"{directory} is a file; give a directory")
        # A manifest alone was left by a process that was killed before it moved the first file.
        is_used = directory.is_dir() and any(
            MANIFEST not in path.name for path in directory.iterdir()
        )
        if marker and is_used and not (directory / marker).is_file():
            raise UserError(
                f"{directory} holds other files and no {marker}; give another directory"
            )
    obsolete = (last, *obsolete) if last else obsolete
    if marker:  # at once, and again at the end, when all names are known
        with reachable(directory):
            names = [marker, *_matching(directory, obsolete)]
            check_own_files(directory, [name for name in names if name != MANIFEST])
    if is_remote(directory):
        with tempfile.TemporaryDirectory(prefix="bert-jax-") as folder:
            yield Path(folder)
            names = _file_names(Path(folder), last)
            check_locks()
            with reachable(directory), _updated_if(marker, Path(folder), directory, names):
                _remove_matching(directory, obsolete)
                upload(Path(folder), directory, names)
        return
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
        partial.mkdir(parents=True)
        yield partial
        check_locks()
        _move(partial, directory, last, obsolete, marker)
    except OSError as error:
        raise not_written(directory, error, "give another directory") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move(partial: Path, directory: Path, last: str, obsolete: Sequence[str], marker: str) -> None:
    names = _file_names(partial, last)
    if not marker and not last and not directory.exists():
        partial.rename(directory)  # as a whole: there is nothing to keep
        return
    for name in names:
        if (directory / name).is_dir():
            raise UserError(f"{directory / name} is a directory; move it away")
    directory.mkdir(exist_ok=True)
    with _updated_if(marker, partial, directory, names):
        _remove_matching(directory, obsolete)
        for name in names:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).replace(directory / name)


@contextlib.contextmanager
def manifest_updated(partial: Path, directory: Path, names: Sequence[str]) -> Iterator[None]:
    """Keeps the manifest of a directory while files of `partial` replace others within the block.

    Args:
        partial: a local directory with the new files.
        directory: the directory, local or in a bucket.
        names: names of the files, the same in both.

    Raises:
        UserError: one of those that are replaced is not from bert_jax.
    """
    with contextlib.nullcontext() if is_remote(directory) else guarded(directory):
        check_own_files(directory, names)
        if not is_remote(directory):
            for path in directory.glob(f".{MANIFEST}.*.partial"):  # of a process that was killed
                path.unlink()
        old, new = read_manifest(directory), manifest_of(partial, names)
        write_atomically(directory / MANIFEST, manifest_bytes(both(old, new)))
        yield
        kept = {name: states for name, states in old.items() if (directory / name).is_file()}
        write_atomically(directory / MANIFEST, manifest_bytes(kept | new))


def _updated_if(
    marker: str, partial: Path, directory: Path, names: Sequence[str]
) -> contextlib.AbstractContextManager[None]:
    return manifest_updated(partial, directory, names) if marker else contextlib.nullcontext()


def _file_names(directory: Path, last: str) -> list[str]:
    """Names of all files below a local directory but the manifest, sorted, `last` at the end."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST)
    names = sorted(path.relative_to(directory).as_posix() for path in files)
    return sorted(names, key=lambda name: name == last)


def _matching(directory: Path, patterns: Sequence[str]) -> list[str]:
    """Names of the files that match a pattern, without the manifest."""
    names = {
        path.relative_to(directory).as_posix()
        for pattern in patterns
        for path in directory.glob(pattern)
        if path.is_file()
    }
    return sorted(names - {MANIFEST})


def _remove_matching(directory: Path, patterns: Sequence[str]) -> None:
    for pattern in patterns:  # in their order: what marks the directory as complete goes first
        for name in _matching(directory, [pattern]):
            (directory / name).unlink()
