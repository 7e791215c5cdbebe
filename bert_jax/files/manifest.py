"""`bert_jax.json` in a directory: which of its files bert_jax wrote, and their checksums.

    {"version": 1, "files": {"config.json": ["613:9f2c…"], …}}

Each file has its size and SHA-256; two of them while it is being replaced. In a bucket only the
size is compared: the digest would need a download. They are compared before a file is replaced, and
when it is read. A run lists some of its files in the same form, under another name.
"""

import fnmatch
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from bert_jax.errors import UserError
from bert_jax.files.paths import check_below, is_remote, state_of
from bert_jax.files.reading import is_there, open_regular, read_json_object

MANIFEST = "bert_jax.json"

Manifest = dict[str, list[str]]


def check_own_files(directory: Path, names: Iterable[str]) -> None:
    """Checks that the files with these names are as bert_jax wrote them, empty or missing.

    Raises:
        UserError: a file has another origin, or was changed.
    """
    manifest = read_manifest(directory)
    for name in sorted(names):
        path = directory / name
        if path.is_file() and state_of(path).size and not _is_one_of(path, manifest.get(name, [])):
            problem = (
                "was changed since bert_jax wrote it"
                if name in manifest
                else f"was not written by bert_jax (it is not in {directory / MANIFEST})"
            )
            raise UserError(f"{path} {problem}; move it away, or write elsewhere")


def check_undamaged(directory: Path, patterns: Iterable[str], name: str = MANIFEST) -> None:
    """Checks that the files of a manifest that match a pattern are undamaged and present.

    Raises:
        UserError: a file is damaged, or was changed.
    """
    matches = re.compile("|".join(map(fnmatch.translate, patterns))).match
    for file, states in read_manifest(directory, name).items():
        if not matches(file):
            continue
        path = directory / file
        remedy = f"copy it again, or, if the change is right, remove {directory / name}"
        if not is_there(path):
            raise UserError(f"{path} is missing, but {directory / name} lists it; {remedy}")
        if not _is_one_of(path, states, remedy):
            raise UserError(f"{path} is damaged, or was changed since bert_jax wrote it; {remedy}")


def read_manifest(directory: Path, name: str = MANIFEST) -> Manifest:
    """The files that bert_jax wrote; none if there is no manifest.

    Raises:
        UserError: the manifest is damaged, no regular file or names others elsewhere, or cannot be
            reached.
    """
    path = directory / name
    if not is_there(path):
        return {}
    remedy = "copy it again, or remove it: then no file is compared with it"
    try:
        files = read_json_object(path, remedy=remedy)["files"]
        for file in files:
            check_below(directory, file, path)
        return {file: list(map(str, states)) for file, states in files.items()}
    except (LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged; {remedy}") from error


def manifest_of(directory: Path, names: Iterable[str]) -> Manifest:
    """The manifest of files in a local directory."""
    return {name: [_state(directory / name)] for name in names}


def manifest_of_content(name: str, content: bytes) -> Manifest:
    """The manifest of a file that is about to be written."""
    return {name: [f"{len(content)}:{hashlib.sha256(content).hexdigest()}"]}


def both(old: Manifest, new: Manifest) -> Manifest:
    """The manifest while new files replace old ones: a process that is killed leaves either."""
    return {name: [*old.get(name, []), *new.get(name, [])] for name in {*old, *new}}


def manifest_bytes(manifest: Manifest) -> bytes:
    """The content of the file."""
    files = dict(sorted(manifest.items()))
    return (json.dumps({"version": 1, "files": files}, indent=2) + "\n").encode()


def _is_one_of(path: Path, states: list[str], remedy: str = "move it away") -> bool:
    sizes = {state.partition(":")[0] for state in states}
    same_size = str(state_of(path).size) in sizes
    return same_size and (is_remote(path) or _state(path, remedy) in states)


def _state(path: Path, remedy: str = "move it away") -> str:
    with open_regular(path, remedy=remedy) as file:
        raw = cast(io.FileIO, file)
        digest = hashlib.file_digest(raw, "sha256").hexdigest()
        return f"{os.fstat(file.fileno()).st_size}:{digest}"
