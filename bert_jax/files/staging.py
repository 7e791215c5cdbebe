"""Directories between a bucket and this machine's disk."""

import contextlib
import fcntl
import fnmatch
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.files.atomic import write_atomically
from bert_jax.files.paths import filesystem, is_remote, reachable, user_cache

# What a store says of a file: "size" in bytes, and one or other of the keys of `_version`.
FileInfo = Mapping[str, Any]

# What a copy was made of: {"model.safetensors": "SIZE VERSION"}.
_RECORD = ".fetched.json"


def fetch(path: Path, patterns: Sequence[str] = ("*",)) -> Path:
    """A local copy of a remote directory or file; a local path is itself.

    The copy is in the user's cache. What is there and unchanged is not fetched again, so a call
    that was interrupted goes on with the file that it was at. Processes of one machine take turns.

    Args:
        path: a directory or a file.
        patterns: which files of a directory, as `tokenizer/*`; `*` matches `/`, too.

    Raises:
        UserError: there is nothing, it cannot be reached, or the disk is full.
    """
    if not is_remote(path):
        return path
    with reachable(path):
        store, root = filesystem(path)
        if store.isfile(root):
            return _fetched(path.parent, {path.name: store.info(root)}) / path.name
        found: dict[str, FileInfo] = {
            name[len(root) :].strip("/"): info
            for name, info in store.find(root, detail=True).items()
        }
    wanted = {
        name: info
        for name, info in found.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if not wanted:
        raise UserError(f"{path} does not exist, or holds nothing of {', '.join(patterns)}")
    return _fetched(path, wanted, found)


def _fetched(
    directory: Path, wanted: Mapping[str, FileInfo], found: Mapping[str, FileInfo] | None = None
) -> Path:
    """The copy of a remote directory, with some of its files.

    Args:
        directory: in a bucket.
        wanted: the files, by their names in it.
        found: all that it has, where that is known: what else is in the copy is removed.
    """
    scheme, _, rest = os.fspath(directory).partition("://")
    copy = user_cache() / "fetched" / scheme / rest
    store, root = filesystem(directory)
    from tqdm import tqdm

    with _disk(copy), _alone(copy):
        record = _read_record(copy)
        for name in [name for name in record if found is not None and name not in found]:
            (copy / name).unlink(missing_ok=True)
            del record[name]
        missing = {
            name: info
            for name, info in wanted.items()
            if record.get(name) != _version(info) or not _has_size(copy / name, info)
        }
        _check_space(copy, missing)
        with tqdm(
            total=sum(int(info["size"]) for info in missing.values()),
            desc=f"fetching {directory}",
            unit="B",
            unit_scale=True,
            disable=None if missing else True,  # None: where nobody watches
        ) as bar:
            for name, info in missing.items():
                target = copy / name
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = target.with_name(f"{target.name}.partial")
                with reachable(directory / name):
                    store.get_file(f"{root}/{name}", str(partial))
                partial.replace(target)
                record[name] = _version(info)
                write_atomically(copy / _RECORD, json.dumps(record).encode())
                bar.update(int(info["size"]))
    return copy


def upload(source: Path, target: Path, names: Sequence[str] | None = None) -> None:
    """Copies files of a local directory to a remote one, where files of other names stay.

    Args:
        source: of this machine.
        target: in a bucket.
        names: of the files, in this order; None for all below `source`.

    Raises:
        UserError: the store cannot be reached.
    """
    if names is None:
        files = (file for file in source.rglob("*") if file.is_file())
        names = sorted(file.relative_to(source).as_posix() for file in files)
    with reachable(target):
        store, root = filesystem(target)
        for name in names:
            store.put_file(str(source / name), f"{root}/{name}")


def remove(directory: Path) -> None:
    """Removes a directory with all that is in it, if it is there.

    Raises:
        UserError: the store cannot be reached.
    """
    if not is_remote(directory):
        shutil.rmtree(directory, ignore_errors=True)
        return
    with reachable(directory):
        store, root = filesystem(directory)
        if store.exists(root):
            store.rm(root, recursive=True)


@contextlib.contextmanager
def written(directory: Path) -> Iterator[Path]:
    """A local place to write the files of a directory to; after an error nothing is uploaded.

    Args:
        directory: itself, made if it is missing, where it is local.
    """
    if not is_remote(directory):
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="bert-jax-") as folder:
        yield Path(folder)
        upload(Path(folder), directory)


def _version(info: FileInfo) -> str:
    """What changes with a file: its size, and what the store counts its changes by."""
    change = next((info[key] for key in ("etag", "ETag", "mtime", "created") if key in info), "")
    return f"{info['size']} {change}"


def _has_size(path: Path, info: FileInfo) -> bool:
    return path.is_file() and path.stat().st_size == info["size"]


def _read_record(copy: Path) -> dict[str, str]:
    """What is in a copy; nothing, if that cannot be read."""
    try:
        record = json.loads((copy / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _check_space(copy: Path, missing: Mapping[str, FileInfo]) -> None:
    needed = sum(int(info["size"]) for info in missing.values())
    free = shutil.disk_usage(copy).free
    if free < needed:
        raise UserError(
            f"{copy}: {needed / 1e9:.1f} GB are to be copied here, and {free / 1e9:.1f} GB are "
            "free; make room, or set XDG_CACHE_HOME to a larger disk"
        )


@contextlib.contextmanager
def _alone(copy: Path) -> Iterator[None]:
    """Waits until no other process works on a copy."""
    copy.mkdir(parents=True, exist_ok=True)
    with open(copy.with_name(f"{copy.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _disk(copy: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{copy}: {error.strerror or error}; make room, or set XDG_CACHE_HOME to another disk"
        ) from error
