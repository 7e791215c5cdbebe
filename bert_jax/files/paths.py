"""Local and remote paths, and the stores of the remote ones.

Remote paths are those of etils.epath (which orbax uses, too) over the file systems of fsspec;
patterns and uploads use these file systems directly.
"""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from bert_jax.errors import UnreachableError, UserError, first_line

if TYPE_CHECKING:
    import fsspec

# Otherwise etils reads buckets through TensorFlow, which only `data/` imports. It reads this at
# the first path that any library makes, so it is set at import.
os.environ.setdefault("EPATH_USE_TF", "0")

# The schemes of etils.epath, and the extra that brings what reads them.
_EXTRAS = {"gs": "gcs", "s3": "s3"}


def as_path(text: str | os.PathLike[str]) -> Path:
    """The path that a user has written: local, or in a bucket.

    Raises:
        UserError: no bucket of that kind can be read.
    """
    text = os.fspath(text)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text)
    if scheme not in _EXTRAS or not rest.strip("/"):
        known = " and ".join(f"{name}://BUCKET/PATH" for name in _EXTRAS)
        raise UserError(f"{text} is not a path that can be read; known are {known}")
    _prepare_stores()
    from etils import epath

    return cast(Path, epath.Path(text))


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is in a bucket."""
    return "://" in os.fspath(path)


def filesystem(path: Path) -> "tuple[fsspec.AbstractFileSystem, str]":
    """The store of a remote path, and the name of the path in it."""
    import fsspec.core

    _prepare_stores()
    return cast("tuple[fsspec.AbstractFileSystem, str]", fsspec.core.url_to_fs(os.fspath(path)))


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[None]:
    """Turns the errors of a store, which are of many kinds, into errors of one line.

    Raises:
        UnreachableError: the remote path cannot be read or written. Errors of local paths pass.
        UserError: the client of its store is not installed.
    """
    if not is_remote(path):
        yield
        return
    try:
        yield
    except UserError:
        raise
    except ImportError as error:
        scheme = os.fspath(path).partition("://")[0]
        raise UserError(
            f"{path}: {scheme}:// needs the extra [{_EXTRAS[scheme]}]: "
            f"pip install 'bert_jax[{_EXTRAS[scheme]}]'"
        ) from error
    except Exception as error:
        raise UnreachableError(
            f"{path}: cannot be reached: {first_line(error)}; check the path, your credentials "
            "(gcloud auth application-default login) and the network, and run again"
        ) from error


def matching_files(pattern: str) -> list[Path]:
    """The files that a remote name, directory or pattern matches, sorted; [] if there are none.

    Hidden files and folders inside directories are left out.

    Raises:
        UserError: the store cannot be reached.
    """
    scheme = pattern.partition("://")[0]
    with reachable(as_path(pattern)):
        store, name = filesystem(as_path(pattern))
        names: list[str] = []
        for match in [name] if store.exists(name) else store.glob(name):
            if store.isfile(match):
                names.append(match)
                continue
            below = (name[len(match) :].strip("/") for name in store.find(match))
            names += [
                f"{match}/{name}"
                for name in below
                if not any(part.startswith(".") for part in name.split("/"))
            ]
    return [as_path(f"{scheme}://{name}") for name in sorted(set(names))]


@dataclasses.dataclass(frozen=True, slots=True)
class FileState:
    """Size and time of a file, which change with its content.

    Attributes:
        size: in bytes.
        modified: time of the last change: ns for local files, s in a store.
    """

    size: int
    modified: int


def state_of(path: Path) -> FileState:
    """Size and time of a file.

    Raises:
        UserError: the store cannot be reached.
    """
    if not is_remote(path):
        local = path.stat()
        return FileState(local.st_size, local.st_mtime_ns)
    with reachable(path):
        remote: Any = path.stat()  # a class of etils with other field names
        return FileState(remote.length, remote.mtime)


def open_binary(path: Path) -> BinaryIO:
    """Opens a file for reading, a local one without a buffer."""
    if not is_remote(path):
        return cast(BinaryIO, open(path, "rb", buffering=0))
    return cast(BinaryIO, path.open("rb"))


def read_json_object(path: Path, *, remedy: str = "copy it again") -> dict[str, Any]:
    """Reads a JSON file that holds an object.

    Args:
        path: local or in a bucket.
        remedy: the end of the error message: what the user can do.

    Raises:
        UserError: it is missing, cannot be read, or is not a JSON object.
    """
    try:
        with reachable(path):
            content = path.read_bytes()
        fields = json.loads(content.decode())
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; {remedy}") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; {remedy}") from error
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}; {remedy}") from error
    if not isinstance(fields, dict):
        raise UserError(f"{path} is not a JSON object; {remedy}")
    return fields


def upload(source: Path, target: Path, names: Sequence[str] | None = None) -> None:
    """Copies files of a local directory to a remote one, whose other files stay.

    Args:
        source: a local directory.
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


def user_cache() -> Path:
    """Directory of files that can be made or fetched again: XDG_CACHE_HOME/bert_jax."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert_jax"


def _prepare_stores() -> None:
    """Configures fsspec before its first use."""
    import fsspec.config

    # Other processes write, too, so cached listings may be wrong.
    for scheme in ("gcs", "gs", "s3"):
        fsspec.config.conf.setdefault(scheme, {}).setdefault("use_listings_cache", False)
