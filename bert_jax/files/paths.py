"""Paths from what users write, and the stores that remote ones are in.

The paths are those of etils.epath, which orbax takes and gives, over the file systems of fsspec;
what only fsspec has (patterns, uploads) is asked of the same file systems.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from bert_jax.errors import UnreachableError, UserError, first_line

if TYPE_CHECKING:
    import fsspec

# Else etils would go through TensorFlow, which the models' side of the house does without. It asks
# once, at the first path of anybody, so this is said when the module is imported.
os.environ.setdefault("EPATH_USE_TF", "0")

# The schemes of etils.epath, and the extra that brings what reads them.
_EXTRAS = {"gs": "gcs", "s3": "s3"}


def as_path(text: str | os.PathLike[str]) -> Path:
    """The path that a user means: of this machine, or of a bucket.

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
    """The store of a remote path, and what the path is called there."""
    import fsspec.core

    _prepare_stores()
    return cast("tuple[fsspec.AbstractFileSystem, str]", fsspec.core.url_to_fs(os.fspath(path)))


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[None]:
    """Says in one line what went wrong with a remote path: each store has errors of its own kinds.

    Raises:
        UnreachableError: the path cannot be read or written. What happens to a local one is passed
            on.
        UserError: what its store needs is not installed.
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
    """The files that a remote name, directory or pattern names, sorted; [] if there are none.

    Hidden files and folders inside directories are left out.

    Raises:
        UserError: the store cannot be reached.
    """
    scheme = pattern.partition("://")[0]
    with reachable(as_path(pattern)):
        store, place = filesystem(as_path(pattern))
        names: list[str] = []
        for match in [place] if store.exists(place) else store.glob(place):
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
    """What tells whether a file has changed.

    Attributes:
        size: in bytes.
        modified: time of the last change: ns on disk, s in a store.
    """

    size: int
    modified: int


def state_of(path: Path) -> FileState:
    """Size and time of a file.

    Raises:
        UserError: the store cannot be reached.
    """
    if not is_remote(path):
        found = path.stat()
        return FileState(found.st_size, found.st_mtime_ns)
    with reachable(path):
        remote: Any = path.stat()  # etils' own, with other names
        return FileState(remote.length, remote.mtime)


def open_binary(path: Path) -> BinaryIO:
    """Opens a file for reading, without a buffer where it is on disk."""
    if not is_remote(path):
        return cast(BinaryIO, open(path, "rb", buffering=0))
    return cast(BinaryIO, path.open("rb"))


def user_cache() -> Path:
    """Where this user's programs keep what can be had again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert_jax"


def _prepare_stores() -> None:
    """Settles how fsspec reaches stores, before it first does."""
    import fsspec.config

    # Other processes write, too: what a listing said a minute ago may be wrong.
    for scheme in ("gcs", "gs", "s3"):
        fsspec.config.conf.setdefault(scheme, {}).setdefault("use_listings_cache", False)
