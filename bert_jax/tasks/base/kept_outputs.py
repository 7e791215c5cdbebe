"""Outputs of an evaluation's batches, from which it continues after a stop or a kill.

    DIRECTORY/
      request.json                       everything that the outputs depend on
      SET/FIRST-LAST-DIGEST.safetensors  outputs of these batches of a set, as BATCH.LEAF

The digest is that of the file's content. What follows from the outputs, such as answers and
metrics, is computed again: that is fast.
"""

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.data.continued_outputs import check_same_request, foreign_file, start_anew
from bert_jax.errors import UserError
from bert_jax.files import (
    check_locks,
    is_remote,
    locked,
    open_regular,
    read_json_object,
    write_atomically,
)
from bert_jax.standard_streams import say

_REQUEST = "request.json"
_SECONDS = 5.0


class KeptOutputs:
    """The outputs of the batches of one set.

    Attributes:
        count: number of batches whose outputs are on the disk.
    """

    def __init__(self, directory: Path) -> None:
        """Finds the outputs of earlier calls.

        Args:
            directory: directory of the set.
        """
        self._directory = directory
        self.count = 0
        self._paths: dict[int, Path] = {}  # by batch
        names = (path.stem.split("-") for path in directory.glob("*-*-*.safetensors"))
        for first, last, digest in sorted(names, key=lambda name: int(name[0])):
            if int(first) == self.count:  # what follows a missing file is computed again
                path = directory / f"{first}-{last}-{digest}.safetensors"
                self._paths |= dict.fromkeys(range(int(first), int(last) + 1), path)
                self.count = int(last) + 1
        self._read: dict[int, list[np.ndarray]] = {}
        self._new: list[Sequence[np.ndarray]] = []
        self._written = time.monotonic()

    def read(self, number: int) -> list[np.ndarray] | None:
        """The leaves of a batch's outputs, once; None if they are not kept.

        Raises:
            UserError: the file is damaged.
        """
        from safetensors.numpy import load

        if number in self._paths and number not in self._read:
            path = self._paths[number]
            remedy = f"remove {path.parents[1]} to start anew"
            with open_regular(path, remedy=remedy) as file:
                content = file.read()
            if path.stem.split("-")[2] != _digest(content):
                raise UserError(f"{path} is damaged; {remedy}")
            tensors = load(content)
            for key in sorted(tensors, key=_batch_and_leaf):
                self._read.setdefault(_batch_and_leaf(key)[0], []).append(tensors[key])
        return self._read.pop(number, None)

    def add(self, number: int, leaves: Sequence[np.ndarray]) -> None:
        """Keeps the outputs of the next batch, unless they are kept already.

        Raises:
            UserError: see `write`.
        """
        if number < self.count:
            return
        self._new.append(leaves)
        if time.monotonic() - self._written >= _SECONDS:
            self.write()

    def write(self) -> None:
        """Writes what was added.

        Raises:
            UserError: it cannot be written, or another process has taken over the evaluation.
        """
        from safetensors.numpy import save

        if self._new:
            check_locks()
            first, last = self.count, self.count + len(self._new) - 1
            tensors = {
                f"{batch}.{leaf}": np.asarray(array, order="C")
                for batch, leaves in enumerate(self._new, start=first)
                for leaf, array in enumerate(leaves)
            }
            content = save(tensors)
            name = f"{first}-{last}-{_digest(content)}.safetensors"
            self._directory.mkdir(exist_ok=True)
            write_atomically(self._directory / name, content)
            self.count, self._new = last + 1, []
        self._written = time.monotonic()


class KeptSets:
    """The outputs of all sets of an evaluation."""

    def __init__(self, directory: Path) -> None:
        """For internal use; `kept_outputs` makes it."""
        self._directory = directory
        self._sets: dict[str, KeptOutputs] = {}

    def of(self, name: str) -> KeptOutputs:
        """The outputs of a set."""
        return self._sets.setdefault(name, KeptOutputs(self._directory / name))

    def write(self) -> int:
        """Writes what was added; returns the number of batches that are kept."""
        for outputs in self._sets.values():
            outputs.write()
        return sum(outputs.count for outputs in self._sets.values())


@contextlib.contextmanager
def kept_beside(
    output: Path | None, request: Callable[[], Mapping[str, Any]]
) -> Iterator[KeptSets | None]:
    """Keeps outputs in OUTPUT.partial, see `kept_outputs`.

    Yields None where nothing is kept: without an output, for one in a bucket, with several hosts.
    """
    if output is None or is_remote(output) or jax.process_count() > 1:
        yield None
        return
    output = output.resolve()
    with kept_outputs(output.with_name(f"{output.name}.partial"), request()) as kept:
        yield kept


@contextlib.contextmanager
def kept_outputs(directory: Path, request: Mapping[str, Any]) -> Iterator[KeptSets]:
    """Keeps outputs in a directory, which is removed at the end of the block.

    After an error, the outputs so far are kept.

    Args:
        directory: a local directory, created if missing.
        request: everything that the outputs depend on, as values of JSON.

    Raises:
        UserError: another process writes there, or the directory is damaged, of another request, or
            has files of others.
    """
    with locked(directory, inside=True):
        _check(directory, request)
        sets = KeptSets(directory)
        try:
            yield sets
        except BaseException:
            with contextlib.suppress(UserError):  # the error that ended the call comes first
                if count := sets.write():
                    line = f"{directory} keeps the outputs of {count:,} batches"
                    say(f"{line}; the same command continues after them")
                else:
                    _remove(directory)
            raise
        _remove(directory)


def _remove(directory: Path) -> None:
    """Removes the request last: without it, outputs would be taken for files of others."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    shutil.rmtree(directory)


def _check(directory: Path, request: Mapping[str, Any]) -> None:
    names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    if not names:
        write_atomically(directory / _REQUEST, json.dumps(request).encode())
        return
    if _REQUEST not in names:
        raise foreign_file(directory, names[0], "outputs of an evaluation")
    then = read_json_object(directory / _REQUEST, remedy=start_anew(directory))
    check_same_request(directory, "outputs", then, request)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _batch_and_leaf(key: str) -> tuple[int, int]:
    batch, _, leaf = key.partition(".")
    return int(batch), int(leaf)
