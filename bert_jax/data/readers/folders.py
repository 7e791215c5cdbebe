"""Folders in the form of BEIR as sources: the files in them."""

from pathlib import Path

from bert_jax.data.readers.tables import is_dataset
from bert_jax.errors import UserError
from bert_jax.files import as_path, reachable

_COMPRESSIONS = ("", ".gz", ".zst", ".bz2", ".xz")


def file_of(source: str | Path, *names: str) -> str | Path:
    """The first file of these names, also compressed, if the source is a folder; else the source.

    Raises:
        UserError: a folder has none.
    """
    if not is_folder(source):
        return source
    folder = as_path(source)
    with reachable(folder):
        paths = (folder / f"{name}{ending}" for name in names for ending in _COMPRESSIONS)
        path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(f"{folder} has no {' or '.join(names)}; give a folder in the form of BEIR")
    return path


def is_folder(source: str | Path) -> bool:
    """Whether a source is a folder, of this machine or in a bucket."""
    if is_dataset(source):
        return False
    with reachable(path := as_path(source)):
        return path.is_dir()
