"""Reads untrusted files: of models, tokenizers, corpora and runs.

Only regular files are opened, so that nothing waits for a named pipe or reads a device without end,
and small files only up to a size. A link must lead to a file in the same directory, or from a
snapshot to the blobs of the same model in the hub's cache:

    models--NAME/snapshots/COMMIT/config.json → models--NAME/blobs/HASH
"""

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, cast

from bert_jax.errors import UserError
from bert_jax.files.paths import filesystem, is_remote, open_binary, reachable

JSON_BYTES = 32 * 2**20
"""The limit for JSON: XLM-R's `tokenizer.json` has 17 MB. Python may take 25 times the memory."""

VOCABULARY_BYTES = 64 * 2**20
"""The limit for `vocab.txt` and SentencePiece models; the largest known have some 20 MB."""

GZIP, BZIP2, XZ, ZSTANDARD = "gzip data", "bzip2 data", "xz data", "Zstandard data"

# The first bytes at an offset, and the format. All have bytes that no text of UTF-8 begins with, or
# a mark that no text begins with.
_FORMATS = (
    (0, b"\x1f\x8b", GZIP),
    (0, b"\xfd7zXZ\0", XZ),
    *((0, b"BZh%d1AY&SY" % level, BZIP2) for level in range(1, 10)),
    *((0, b"BZh%d\x17rE8P\x90" % level, BZIP2) for level in range(1, 10)),  # of nothing
    (0, b"\x28\xb5\x2f\xfd", ZSTANDARD),
    *((0, b"%c\x2a\x4d\x18" % kind, ZSTANDARD) for kind in range(0x50, 0x60)),  # as of pzstd
    (0, b"\x04\x22\x4d\x18", "LZ4 data"),
    (0, b"PK\x03\x04", "a zip archive, as .docx, .xlsx, .epub and .npz files are"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"PAR1\x15", "a Parquet file"),
    (0, b"ARROW1\0\0", "an Arrow file"),
    (0, b"\xff\xff\xff\xff", "an Arrow stream"),
    (0, b"FEA1\0", "a Feather file"),
    (0, b"Obj\x01", "an Avro file"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x93NUMPY", "a NumPy file"),
    *((0, bytes([0x80, protocol]), "a pickle") for protocol in range(2, 6)),
    (0, b"%PDF-", "a PDF file"),
    (0, b"{\\rtf", "an RTF document"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document, as .doc and .xls files are"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
)

FIRST_BYTES = max(offset + len(magic) for offset, magic, _ in _FORMATS)
"""The number of bytes that `format_of` compares."""

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# Errors of `os.open` for these kinds, and for a link, which it does not follow.
_NOT_OPENED = {errno.ELOOP: "a link", errno.EISDIR: "a directory", errno.ENXIO: "a named pipe"}


def format_of(first: bytes) -> str:
    """The format of a file that begins with these bytes, with its article; "" if it may be text."""
    return next((what for at, magic, what in _FORMATS if first.startswith(magic, at)), "")


def is_there(path: Path) -> bool:
    """Whether a directory has this name, even for something that `open_regular` refuses.

    Otherwise a named pipe instead of `tokenizer.json` would make another file count.
    """
    with reachable(path):
        return path.exists() if is_remote(path) else os.path.lexists(path)


def open_regular(path: Path, directory: Path | None = None, *, remedy: str) -> BinaryIO:
    """Opens a regular file for reading, without a buffer.

    Args:
        path: path of the file, local or in a bucket.
        directory: the directory that links must not leave; None: the file's own.
        remedy: end of the error message: what the user can do.

    Raises:
        UserError: the file is missing, cannot be read, is not a regular file, or a link that
            leaves the directory.
    """
    try:
        if is_remote(path):
            if not is_there(path):
                raise FileNotFoundError
            with reachable(path):
                return open_binary(path)
        _check_link(path, directory or path.parent, remedy)
        # Opening a named pipe would otherwise wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; {remedy}") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}; {remedy}") from error
    try:
        _check_mode(path, os.fstat(descriptor).st_mode, remedy)
    except UserError:
        os.close(descriptor)
        raise
    return cast(BinaryIO, open(descriptor, "rb", buffering=0))


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """Opens a file that only bert_jax makes, so that it has one name and is not a link.

    Otherwise the content would be written to the user's file.

    Args:
        path: path of the file, on this machine.
        flags: see `os.open`.

    Returns:
        The file descriptor.

    Raises:
        UserError: it is something else.
        OSError: see `os.open`.
    """
    kind = ""
    try:  # without waiting for the writer of a named pipe
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        kind = _NOT_OPENED.get(error.errno or 0, "")
        if not kind:
            raise
    else:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            kind = _KINDS.get(stat.S_IFMT(state.st_mode), "something else")
        elif state.st_nlink > 1:
            kind = "one of several names of a file (hard links)"
        if not kind:
            return descriptor
        os.close(descriptor)
    raise UserError(f"{path} is {kind}, not a file of bert_jax; remove it")


def check_regular(path: Path, *, remedy: str = "move it away") -> None:
    """Checks what has this name, if anything has it, before it is replaced.

    Raises:
        UserError: it is something else than `open_regular` opens; not for a path in a bucket.
    """
    if is_remote(path) or not is_there(path):
        return
    _check_link(path, path.parent, remedy)
    try:
        _check_mode(path, path.stat().st_mode, remedy)
    except FileNotFoundError:  # a link to a file that does not exist
        return
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; {remedy}") from error


def regular_files_below(directory: Path, *, remedy: str) -> set[str]:
    """Names of all files below a directory, such as "state/manifest.ocdbt".

    For libraries that open files themselves. Files that another process removes meanwhile are left
    out.

    Raises:
        UserError: something else than files and directories is below it, or a link that leads out
            of it, or to a directory.
    """
    if is_remote(directory):
        with reachable(directory):
            store, root = filesystem(directory)
            return {name[len(root) :].strip("/") for name in store.find(root)}
    names = set()
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if path.is_symlink():
                    _check_link(path, directory, remedy)
                elif name in folders:
                    continue
                _check_mode(path, path.stat().st_mode, remedy)
                names.add(path.relative_to(directory).as_posix())
    return names


def read_limited(path: Path, limit: int, directory: Path | None = None, *, remedy: str) -> bytes:
    """The content of a regular file of at most `limit` bytes; see `open_regular`.

    Raises:
        UserError: the file cannot be opened or read, or is larger.
    """
    try:
        with open_regular(path, directory, remedy=remedy) as file, reachable(path):
            content = bytearray()
            while part := file.read(limit + 1 - len(content)):  # a raw file may return less
                content += part
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}; {remedy}") from error
    if len(content) > limit:
        raise UserError(f"{path} is larger than the limit of {limit / 2**20:g} MiB; {remedy}")
    return bytes(content)


def read_json(path: Path, directory: Path | None = None, *, remedy: str = "copy it again") -> Any:
    """Reads a JSON file of at most `JSON_BYTES`; see `open_regular`.

    Raises:
        UserError: the file cannot be read, is too large or not JSON.
    """
    content = read_limited(path, JSON_BYTES, directory, remedy=remedy)
    try:
        return json.loads(content.decode())
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; {remedy}") from error
    except RecursionError as error:
        raise UserError(f"{path}: its JSON is nested too deeply; {remedy}") from error
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{path} cannot be read: {error}; {remedy}") from error


def read_json_object(
    path: Path, directory: Path | None = None, *, remedy: str = "copy it again"
) -> dict[str, Any]:
    """Reads a JSON file that contains an object; see `read_json`.

    Raises:
        UserError: the file cannot be read, is too large or not a JSON object.
    """
    fields = read_json(path, directory, remedy=remedy)
    if not isinstance(fields, dict):
        raise UserError(f"{path} is not a JSON object; {remedy}")
    return fields


def _check_mode(path: Path, mode: int, remedy: str) -> None:
    """Raises UserError for anything but a regular file."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise UserError(f"{path} is {kind}, not a regular file; {remedy}")


def _check_link(path: Path, directory: Path, remedy: str) -> None:
    """Raises UserError for a link, of the file or a folder above it, that leaves a directory."""
    target, root = Path(os.path.realpath(path)), Path(os.path.realpath(directory))
    if target.is_relative_to(root):
        return
    for folder in (root, *root.parents):
        if folder.parent.name == "snapshots":
            if target.is_relative_to(folder.parents[1] / "blobs"):
                return
            break
    raise UserError(
        f"{path} is a link to {target}, which is outside of {directory}; copy the file there, or "
        f"{remedy}"
    )
