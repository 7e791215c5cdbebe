"""A directory of a model's files that is whole, or is what it was before; here or in a bucket."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.errors import UserError
from bert_jax.files import is_remote, reachable, upload


@contextlib.contextmanager
def whole_directory(
    directory: Path, *, marker: str, last: str, obsolete: Sequence[str]
) -> Iterator[Path]:
    """A hidden place beside a directory to write its files to; they are moved in at the end.

    For a directory in a bucket the place is on this machine's disk, and the files are uploaded.

    A directory that has the last file is whole. What else lies in it, as a model card, stays. After
    an error before the end, the directory is what it was, and the hidden place is gone.

    Args:
        directory: made if it is missing.
        marker: a file that only a directory of this kind has: others are not touched.
        last: name of the file that is moved last.
        obsolete: patterns of files of an older model that must not outlive it.

    Raises:
        UserError: the directory holds something else, or cannot be written.
    """
    if not is_remote(directory):
        directory = directory.resolve()
    with reachable(directory):
        if directory.exists() and not directory.is_dir():
            raise UserError(f"{directory} is a file; give a directory")
        if directory.is_dir() and any(directory.iterdir()) and not (directory / marker).is_file():
            raise UserError(f"{directory} holds something that is no model; give another directory")
    if is_remote(directory):
        with tempfile.TemporaryDirectory(prefix="bert-jax-") as folder:
            yield Path(folder)
            with reachable(directory):
                _remove(directory, (last, *obsolete))
            upload(Path(folder), directory, _ordered(Path(folder), last))
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
    """Puts the new files in the place of the old, those that make it whole at the end."""
    names = _ordered(partial, last)
    for name in names:
        if (directory / name).is_dir():
            raise UserError(f"{directory / name} is a directory; move it away")
    directory.mkdir(exist_ok=True)
    _remove(directory, (last, *obsolete))
    for name in names:
        (directory / name).parent.mkdir(exist_ok=True)
        (partial / name).replace(directory / name)


def _ordered(partial: Path, last: str) -> list[str]:
    """Names of the new files, that at the end which makes the directory whole."""
    files = (path for path in partial.rglob("*") if path.is_file())
    names = (path.relative_to(partial).as_posix() for path in files)
    return sorted(names, key=lambda name: name == last)


def _remove(directory: Path, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        for path in directory.glob(pattern):
            if path.is_file():
                path.unlink()
