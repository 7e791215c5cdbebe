"""Files that are either the old or the new one, never half of it."""

import os
from pathlib import Path

from bert_jax.errors import UserError
from bert_jax.files.paths import is_remote, reachable


def write_atomically(path: Path, content: bytes) -> None:
    """Writes to a neighbour, then renames it; a store takes a whole object or none.

    Raises:
        UserError: the file cannot be written (full disk, no permission); the old one is whole.
    """
    if is_remote(path):
        with reachable(path):
            path.write_bytes(content)
        return
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path}: {error.strerror}; free space or choose another"
        ) from error
