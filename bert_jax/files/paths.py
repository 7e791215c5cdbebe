"""Local and remote paths, and the stores of the remote ones.

Remote paths are paths of etils.epath (which orbax uses, too) on top of the file systems of fsspec;
patterns and uploads use these file systems directly.
"""

import contextlib
import dataclasses
import functools
import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from bert_jax.errors import UnreachableError, UserError, first_line

if TYPE_CHECKING:
    import fsspec

# Otherwise etils reads buckets with TensorFlow, which only `data/` imports. etils reads this when
# the first path is created by any library, so it is set at import.
os.environ.setdefault("EPATH_USE_TF", "0")

# In the directory of a run, or of several runs: the files that identify it, the file that is
# written last, and the directory of the model.
RUN_CONFIG, MODEL_CONFIG, SEVERAL_RUNS = "config.json", "model_config.json", "several_runs.json"
RESULT, MODEL = "result.json", "model"
# In the directory of a model, also in Hugging Face's layout: what the model is.
DESCRIPTION = "config.json"
_PLAIN_NAME = re.compile(r"(?:[\w-][\w.-]*/)*[\w-][\w.-]*", re.ASCII)
OLD_DESCRIPTION = "bert_config.json"
# Endings of results of searches in the format of TREC, see `data.runs`.
TREC_ENDINGS = (".run", ".trec")

# The schemes of etils.epath, and the extra that installs the client of each.
_EXTRAS = {"gs": "gcs", "s3": "s3"}

# The time limit of a store's first answer. Later its client tries again for half a minute.
_FIRST_ANSWER_SECONDS = 10.0


def as_path(text: str | os.PathLike[str]) -> Path:
    """A path, local or in a bucket, from the text that a user writes.

    Raises:
        UserError: the kind of bucket is not supported.
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
    """The file system of a remote path, and the name of the path in it."""
    import fsspec.core

    _prepare_stores()
    return cast("tuple[fsspec.AbstractFileSystem, str]", fsspec.core.url_to_fs(os.fspath(path)))


def below(directory: Path, name: str, source: object) -> Path:
    """The path of a name that a file or a store gives, see `check_below`."""
    check_below(directory, name, source)
    return directory / name


def check_below(directory: Path, name: str, source: object) -> None:
    """Checks that a name that a file or a store gives never leaves a directory.

    Args:
        directory: directory that the name counts from, local or in a bucket.
        name: such as "tokenizer/vocab.txt".
        source: what gives the name, for the error.

    Raises:
        UserError: the name is absolute, or has an empty part, ".", "..", a drive or a zero byte.
    """
    if _PLAIN_NAME.fullmatch(name):  # a file may have very many
        return
    is_plain = {"", ".", ".."}.isdisjoint(re.split(r"[/\\]", name)) and "\0" not in name
    if not is_plain or PureWindowsPath(name).drive:
        raise UserError(
            f"{source} names {name!r:.80}, which is not the name of a file below {directory}; "
            "rename the file, or take it from a source that you trust"
        )


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[None]:
    """Turns the various errors of a store into errors of one line.

    Raises:
        UnreachableError: the remote path cannot be read or written. Errors of local paths pass
            through.
        UserError: the client of the store is not installed.
    """
    if not is_remote(path):
        yield
        return
    try:
        _await_answer("/".join(os.fspath(path).split("/")[:3]))  # gs://BUCKET
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
    """The files that match a remote name, directory or pattern, sorted; [] if there are none.

    Hidden files and folders in directories are left out.

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
            inside = (name.removeprefix(f"{match}/") for name in store.find(match))
            names += [
                f"{match}/{name}"
                for name in inside
                if name.rpartition("/")[2] and not any(p.startswith(".") for p in name.split("/"))
            ]
    return [as_path(f"{scheme}://{name}") for name in sorted(set(names))]


@dataclasses.dataclass(frozen=True, slots=True)
class FileState:
    """Size and time of a file, which change with its content.

    Attributes:
        size: size in bytes.
        modified: time of the last change: ns for local files, s in a store.
    """

    size: int
    modified: int


def state_of(path: Path) -> FileState:
    """Size and time of a file.

    Raises:
        UserError: the file cannot be read, such as a link to no file, or the store be reached.
    """
    if not is_remote(path):
        try:
            local = path.stat()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}; remove it") from error
        return FileState(local.st_size, local.st_mtime_ns)
    with reachable(path):
        remote: Any = path.stat()  # a class of etils with other field names
        return FileState(remote.length, remote.mtime)


def open_binary(path: Path) -> BinaryIO:
    """Opens a file for reading, a local one without a buffer."""
    if not is_remote(path):
        return cast(BinaryIO, open(path, "rb", buffering=0))
    return cast(BinaryIO, path.open("rb"))


def upload(source: Path, target: Path, names: Sequence[str] | None = None) -> None:
    """Copies files of a local directory to a remote one; other files there are kept.

    Args:
        source: a local directory.
        target: a directory in a bucket.
        names: names of the files, copied in this order; None for all below `source`.

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
    """Removes a directory with its contents, if it exists.

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
    """The directory of files that can be recreated or fetched again: XDG_CACHE_HOME/bert_jax.

    Raises:
        UserError: the user has no home directory, as in some containers.
    """
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if parent.startswith("~"):
        raise UserError("this user has no home directory; set XDG_CACHE_HOME for fetched files")
    return Path(parent, "bert_jax")


@functools.cache
def _await_answer(bucket: str) -> None:
    """Waits for the first answer of the store of a bucket, as gs://BUCKET.

    Raises:
        TimeoutError: there is none.
    """
    import fsspec.core
    from fsspec.asyn import sync
    from fsspec.exceptions import FSTimeoutError

    _prepare_stores()
    store: Any = fsspec.core.url_to_fs(bucket)[0]
    name = bucket.partition("://")[2]
    try:
        sync(store.loop, store._info, f"{name}/.bert_jax", timeout=_FIRST_ANSWER_SECONDS)
    except FSTimeoutError:
        raise TimeoutError(f"no answer within {_FIRST_ANSWER_SECONDS:.0f} s") from None
    except Exception:
        pass  # the store has answered; the next call reports its error


def _prepare_stores() -> None:
    """Configures fsspec and its clients before their first use."""
    import fsspec.config

    for name in ("gcsfs", "s3fs"):  # they log the errors, too, that they raise
        if not logging.getLogger(name).level:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    # Other processes write, too, so cached listings may be outdated.
    for scheme in ("gcs", "gs", "s3"):
        fsspec.config.conf.setdefault(scheme, {}).setdefault("use_listings_cache", False)
