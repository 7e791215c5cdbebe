"""Local copies of remote files, in the user's cache."""

import contextlib
import fnmatch
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files.atomic import remove_partial_files, replaced, write_atomically
from bert_jax.files.paths import below, filesystem, is_remote, reachable, user_cache
from bert_jax.files.reading import read_json_object

# A store's description of a file: "size" in bytes, and one of the keys of `_version`.
FileInfo = Mapping[str, Any]

# The record of a copy: {"model.safetensors": "SIZE VERSION"}.
_RECORD = ".fetched.json"


def fetch(path: Path, patterns: Sequence[str] = ("*",)) -> Path:
    """A local copy of a remote directory or file; for a local path, the path itself.

    The copy is in the user's cache. Unchanged files are not fetched again, so a call after an
    interruption continues with the interrupted file. Processes of one machine take turns.

    Args:
        path: a directory or a file.
        patterns: patterns of files of a directory, such as `tokenizer/*`; `*` matches `/`, too.

    Raises:
        UserError: the path or its files do not exist, cannot be reached, or the disk is full.
    """
    if not is_remote(path):
        return path
    with reachable(path):
        store, root = filesystem(path)
        if store.isfile(root):
            return _update_copy(path.parent, {path.name: store.info(root)}) / path.name
        all_files: dict[str, FileInfo] = {
            name.removeprefix(f"{root}/"): info
            for name, info in store.find(root, detail=True).items()
            if not name.endswith(("/", f"/{_RECORD}"))  # consoles store empty files as "folder/"
        }
    requested = {
        name: info
        for name, info in all_files.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not requested:
        raise UserError(f"{path} does not exist, or holds nothing of {', '.join(patterns)}")
    return _update_copy(path, requested, all_files)


def _update_copy(
    directory: Path,
    requested: Mapping[str, FileInfo],
    all_files: Mapping[str, FileInfo] | None = None,
) -> Path:
    """Updates the copy of a remote directory, with some of its files.

    Args:
        directory: directory in a bucket.
        requested: the files to copy, by their names in it.
        all_files: all its files, if known: other files in the copy are removed.
    """
    scheme, _, rest = os.fspath(directory).partition("://")
    copy = below(user_cache() / "fetched" / scheme, rest, directory)
    store, root = filesystem(directory)
    from filelock import FileLock
    from tqdm import tqdm

    with _disk_errors(copy), contextlib.ExitStack() as lock:
        copy.mkdir(parents=True, exist_ok=True)
        lock.enter_context(FileLock(copy.with_name(f"{copy.name}.lock")))
        remove_partial_files(copy)
        record = _read_record(copy)
        for name in [name for name in record if all_files is not None and name not in all_files]:
            below(copy, name, copy / _RECORD).unlink(missing_ok=True)
            del record[name]
        missing = {
            name: info
            for name, info in requested.items()
            if record.get(name) != _version(info)
            or not _has_size(below(copy, name, directory), info)
        }
        _check_space(copy, missing)
        with tqdm(
            total=sum(int(info["size"]) for info in missing.values()),
            desc=f"fetching {directory}",
            unit="B",
            unit_scale=True,
            disable=None if missing else True,  # None: only on a terminal
        ) as bar:
            for name, info in missing.items():
                target = below(copy, name, directory)
                target.parent.mkdir(parents=True, exist_ok=True)
                with replaced(target) as partial, reachable(directory / name):
                    store.get_file(f"{root}/{name}", str(partial))
                record[name] = _version(info)
                write_atomically(copy / _RECORD, json.dumps(record).encode())
                bar.update(int(info["size"]))
    return copy


def _version(info: FileInfo) -> str:
    """A string that changes with a file: its size, and the version number of the store."""
    change = next((info[key] for key in ("etag", "ETag", "mtime", "created") if key in info), "")
    return f"{info['size']} {change}"


def _has_size(path: Path, info: FileInfo) -> bool:
    return path.is_file() and path.stat().st_size == info["size"]


def _read_record(copy: Path) -> dict[str, str]:
    """The record of a copy; empty if it cannot be read."""
    try:
        return read_json_object(copy / _RECORD)
    except UserError:
        return {}


def _check_space(copy: Path, missing: Mapping[str, FileInfo]) -> None:
    needed = sum(int(info["size"]) for info in missing.values())
    free = shutil.disk_usage(copy).free
    if free < needed:
        raise UserError(
            f"{copy}: {needed / 1e9:.1f} GB are to be copied here, and {free / 1e9:.1f} GB are "
            "free; remove files, or set XDG_CACHE_HOME to a larger disk"
        )


@contextlib.contextmanager
def _disk_errors(copy: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{copy}: {error.strerror or error}; free space, or set XDG_CACHE_HOME to another disk"
        ) from error
