"""A directory of a model's files that is whole, or is what it was before."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert_jax.errors import UserError


@contextlib.contextmanager
def whole_directory(
    directory: Path, *, marker: str, last: str, obsolete: Sequence[str]
) -> Iterator[Path]:
    """A hidden place beside a directory to write its files to; they are moved in at the end.

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
    directory = directory.resolve()
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file; give a directory")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / marker).is_file():
        raise UserError(f"{directory} holds something that is no model; give another directory")
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
    new = sorted(partial.iterdir(), key=lambda path: path.name == last)
    for path in new:
        if (directory / path.name).is_dir():
            raise UserError(f"{directory / path.name} is a directory; move it away")
    directory.mkdir(exist_ok=True)
    for pattern in (last, *obsolete):
        for path in directory.glob(pattern):
            if path.is_file():
                path.unlink()
    for path in new:
        path.replace(directory / path.name)
