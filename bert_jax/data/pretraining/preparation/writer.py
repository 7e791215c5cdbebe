"""Writes a corpus to `OUTPUT.partial/`, which is renamed to OUTPUT when it is complete.

The files only grow. From time to time a journal records their lengths and checksums, and the number
of text batches they contain; after an interruption, everything written later is cut off. A corpus
in a bucket is made in the user's cache and then uploaded, its manifest last.
"""

import contextlib
import dataclasses
import errno
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bert_jax.data.pretraining.corpus import (
    FILE_KINDS,
    MANIFEST_NAME,
    SPLITS,
    TOKENIZER_DIRECTORY,
    Counts,
    Manifest,
    split_file,
    sync_directory,
)
from bert_jax.data.pretraining.preparation.encoding import EncodedSplit
from bert_jax.errors import UserError
from bert_jax.files import (
    check_locks,
    is_remote,
    reachable,
    remove_partial_files,
    upload,
    user_cache,
)
from bert_jax.files.journal import DAMAGES, GrowingFile, read_record, write_record

JOURNAL_NAME = "journal.json"

_OFFSET = np.dtype("<i8")


@dataclasses.dataclass(slots=True)
class SplitProgress:
    """Counts of the written part of one split.

    Attributes:
        counts: counts of each source.
        last_document: number of the last document written, -1 at the start.
        last_source: index of its source.
        last_counts: counts of that document so far.
    """

    counts: list[Counts]
    last_document: int = -1
    last_source: int = 0
    last_counts: Counts = dataclasses.field(default_factory=Counts)

    def total(self) -> Counts:
        """The counts of all sources together."""
        return sum(self.counts, Counts())


@dataclasses.dataclass(slots=True)
class Journal:
    """The content of the journal.

    Attributes:
        fingerprint: changes with text, options, tokenizer and batch size.
        batches: number of text batches that are written.
        splits: counts of each split.
        files: size and SHA-256 of each file, "SIZE:SHA-256".
    """

    fingerprint: str
    batches: int
    splits: dict[str, SplitProgress]
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def begin(cls, fingerprint: str, sources: int) -> "Journal":
        """The progress before the first batch."""
        splits = {split: SplitProgress([Counts() for _ in range(sources)]) for split in SPLITS}
        return cls(fingerprint, 0, splits)

    def tokens(self) -> int:
        """Tokens of both splits together."""
        return sum(split.total().tokens for split in self.splits.values())

    def write(self, directory: Path) -> None:
        """Replaces the journal in a directory."""
        write_record(directory / JOURNAL_NAME, dataclasses.asdict(self))
        sync_directory(directory)

    @classmethod
    def read(cls, directory: Path) -> "Journal | None":
        """The journal in a directory, or None if it is missing or damaged."""
        try:
            fields = read_record(directory / JOURNAL_NAME)
            splits = {
                split: SplitProgress(
                    **entry
                    | {
                        "counts": [Counts(**counts) for counts in entry["counts"]],
                        "last_counts": Counts(**entry["last_counts"]),
                    }
                )
                for split, entry in fields["splits"].items()
            }
            return cls(**fields | {"splits": splits})
        except (UserError, *DAMAGES):
            return None


class CorpusWriter:
    """Writes the files of both splits.

    Args:
        directory: directory of the files; created by the caller.
        dtype: dtype of the token ids.
        progress: progress to continue from; the files are cut to what it records.

    Raises:
        UserError: a file is damaged.
    """

    def __init__(self, directory: Path, dtype: np.dtype, progress: Journal):
        self.progress = progress
        self._directory = directory
        self._dtypes = {"tokens": dtype, "sentences": _OFFSET, "documents": _OFFSET}
        self._files: dict[str, GrowingFile] = {}

    def __enter__(self) -> "CorpusWriter":
        for split, kind in itertools.product(SPLITS, FILE_KINDS):
            self._open(split_file(split, kind))
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # of a full disk, which was said
                file.close()

    def _open(self, name: str) -> None:
        path = self._directory / name
        try:
            self._files[name] = GrowingFile(path, self.progress.files.get(name, ""))
        except DAMAGES as error:
            raise UserError(
                f"{path} is damaged; remove {self._directory} and start again"
            ) from error

    def append(self, source: int, encoded: dict[str, EncodedSplit]) -> None:
        """Writes the next batch, which has text of one source."""
        for split, part in encoded.items():
            self._append_split(split, source, part)
        self.progress.batches += 1

    def _append_split(self, split: str, source: int, part: EncodedSplit) -> None:
        progress = self.progress.splits[split]
        before = progress.total()
        # The start of a document that continues from the previous batch has already been written.
        is_new = part.documents[:, 0] != progress.last_document
        self._write(split, "tokens", part.tokens)
        self._write(split, "sentences", _starts(before.tokens, part.sentence_lengths))
        self._write(split, "documents", _starts(before.sentences, part.documents[:, 1])[is_new])
        for row, new in zip(part.documents.tolist(), is_new.tolist(), strict=True):
            if new:
                progress.last_document, progress.last_source = row[0], source
                progress.last_counts = Counts()
            counts = Counts(int(new), *row[1:])
            progress.last_counts += counts
            progress.counts[source] += counts

    def write_journal(self) -> None:
        """Flushes the files to disk, then replaces the journal."""
        self._write_journal({})

    def _write_journal(self, shorter: dict[str, str]) -> None:
        """Args: `shorter`: the states of files that are cut after it."""
        check_locks()
        for file in self._files.values():
            file.sync()
        self.progress.files = {name: file.state for name, file in self._files.items()} | shorter
        self.progress.write(self._directory)

    def move_last_document(self, origin: str, target: str) -> None:
        """Moves the last document of one split to the end of the other one.

        The journal is written before the first split gets shorter, so that at any time the files
        contain at least the recorded data.
        """
        source, destination = self.progress.splits[origin], self.progress.splits[target]
        moved, before = source.last_counts, destination.total()
        remaining = source.total() - moved
        starts = self._read(origin, "sentences", remaining.sentences)
        self._write(target, "tokens", self._read(origin, "tokens", remaining.tokens))
        self._write(target, "sentences", starts - remaining.tokens + before.tokens)
        self._write(target, "documents", np.array([before.sentences]))
        source.counts[source.last_source] -= moved
        destination.counts[source.last_source] += moved
        source.last_counts = Counts()
        sizes = {
            split_file(origin, kind): getattr(remaining, kind) * dtype.itemsize
            for kind, dtype in self._dtypes.items()
        }
        self._write_journal({name: self._files[name].state_of(sizes[name]) for name in sizes})
        for name in sizes:
            self._files[name].close()
            self._open(name)

    def finish(self) -> None:
        """Completes the files: writes the end of the last sentence and of the last document."""
        for split, progress in self.progress.splits.items():
            total = progress.total()
            self._write(split, "sentences", np.array([total.tokens]))
            self._write(split, "documents", np.array([total.sentences]))
        for file in self._files.values():
            file.sync()

    def _write(self, split: str, kind: str, values: np.ndarray) -> None:
        self._files[split_file(split, kind)].write(values.astype(self._dtypes[kind]).tobytes())

    def _read(self, split: str, kind: str, start: int) -> np.ndarray:
        name, dtype = split_file(split, kind), self._dtypes[kind]
        self._files[name].flush()
        return np.fromfile(self._directory / name, dtype, offset=start * dtype.itemsize)


def _starts(first: int, lengths: np.ndarray) -> np.ndarray:
    """Start of each sentence or document if the first one starts at `first`: int64 [n]."""
    return first + np.cumsum(lengths) - lengths


_NAMES = {
    TOKENIZER_DIRECTORY,
    *itertools.starmap(split_file, itertools.product(SPLITS, FILE_KINDS)),
}
_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def finished_manifest(output: Path, fingerprint: str) -> Manifest | None:
    """The manifest of a finished corpus, or None if `output` does not exist or is empty.

    Raises:
        UserError: `output` contains something else, or a corpus with another fingerprint.
    """
    remedy = "give another --output or remove it"
    with reachable(output):
        if not output.exists() or (output.is_dir() and not any(output.iterdir())):
            return None
        if not (output / MANIFEST_NAME).is_file():
            if is_remote(output) and {path.name for path in output.iterdir()} <= _NAMES:
                return None  # an upload that was interrupted
            raise UserError(f"{output}: exists and is not a corpus; {remedy}")
    manifest = Manifest.read(output)
    if manifest.fingerprint != fingerprint:
        raise UserError(
            f"{output}: holds a corpus of other text, options or tokenizer "
            f"(fingerprint {manifest.fingerprint}, now {fingerprint}); {remedy}"
        )
    return manifest


@contextlib.contextmanager
def partial_directory(output: Path) -> Iterator[Path]:
    """Creates `OUTPUT.partial`, on the local disk.

    Raises:
        UserError: it contains something else, or cannot be written (full disk, permissions). It is
            kept, so that the next call can continue.
    """
    partial = output.with_name(output.name + ".partial")
    if is_remote(output):
        partial = user_cache() / "prepared" / os.fspath(partial).replace("://", "/")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        # The journal is the first file of a corpus that is being made.
        others = any(path.suffix != ".partial" for path in partial.iterdir())
        if others and not (partial / JOURNAL_NAME).is_file():
            raise UserError(
                f"{partial} holds other files and no {JOURNAL_NAME}; move it away or give another "
                "--output"
            )
        yield partial
    except OSError as error:
        if error.errno in _SPACE_ERRORS:
            reason = f"no space left ({error.strerror}); remove files"
        else:
            reason = f"{error.strerror} ({error.filename or 'while writing'}); fix that"
        raise UserError(f"{partial}: {reason} and run the same command to continue") from error


def resume(partial: Path, fingerprint: str) -> Journal | None:
    """The progress of an earlier call with this fingerprint, or None."""
    progress = Journal.read(partial)
    return progress if progress is not None and progress.fingerprint == fingerprint else None


def begin(partial: Path, fingerprint: str, sources: int) -> Journal:
    """Removes the files of an earlier call with another fingerprint, and starts a journal."""
    Journal.begin("", sources).write(partial)  # continued by no call
    for split, kind in itertools.product(SPLITS, FILE_KINDS):
        (partial / split_file(split, kind)).unlink(missing_ok=True)
    shutil.rmtree(partial / TOKENIZER_DIRECTORY, ignore_errors=True)
    progress = Journal.begin(fingerprint, sources)
    progress.write(partial)
    return progress


def publish(partial: Path, output: Path) -> None:
    """Renames (or uploads) a finished corpus to OUTPUT."""
    check_locks()
    if is_remote(output):
        upload(partial, output, [*Manifest.read(partial).files, MANIFEST_NAME])
        shutil.rmtree(partial)
        return
    remove_partial_files(partial)
    os.rename(partial, output)
    sync_directory(output.parent)
    remove_journal(output)


def remove_journal(output: Path) -> None:
    """Removes the journal from a finished corpus; a call that was killed may have left it."""
    if not is_remote(output):
        (output / JOURNAL_NAME).unlink(missing_ok=True)
