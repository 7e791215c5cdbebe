"""Appends encoded chunks to the files of a corpus, so that a killed run can go on.

The files only grow. From time to time a journal says how long they were after which chunk; what
was written after that is cut off when the work is taken up again, and so is a torn write.
"""

import dataclasses
import io
import json
import os
from pathlib import Path

import numpy as np

from bert_jax.data.pretraining.corpus import FILE_KINDS, split_file
from bert_jax.data.pretraining.corpus_manifest import SPLITS, Counts, sync_directory
from bert_jax.data.pretraining.preparation.encoding import EncodedSplit
from bert_jax.errors import UserError
from bert_jax.files import write_atomically

JOURNAL_NAME = "journal.json"

_OFFSET = np.dtype("<i8")


@dataclasses.dataclass(slots=True)
class SplitProgress:
    """How far one split has come.

    Attributes:
        counts: of each source.
        last_document: number of the document that was written last, -1 at the start.
        last_source: which source it is from.
        last_counts: what it holds so far.
    """

    counts: list[Counts]
    last_document: int = -1
    last_source: int = 0
    last_counts: Counts = dataclasses.field(default_factory=Counts)

    def total(self) -> Counts:
        """Counts of all sources together."""
        total = Counts()
        for counts in self.counts:
            total.add(counts)
        return total


@dataclasses.dataclass(slots=True)
class Progress:
    """What the journal says.

    Attributes:
        fingerprint: of the work that was begun.
        chunks: how many chunks are written.
        splits: how far each split has come.
    """

    fingerprint: str
    chunks: int
    splits: dict[str, SplitProgress]

    @classmethod
    def begin(cls, fingerprint: str, sources: int) -> "Progress":
        """Before the first chunk."""
        splits = {split: SplitProgress([Counts() for _ in range(sources)]) for split in SPLITS}
        return cls(fingerprint, 0, splits)

    def tokens(self) -> int:
        """Tokens of both splits together."""
        return sum(split.total().tokens for split in self.splits.values())

    def write(self, directory: Path) -> None:
        """Replaces the journal in a directory."""
        text = json.dumps(dataclasses.asdict(self))
        write_atomically(directory / JOURNAL_NAME, text.encode())
        sync_directory(directory)

    @classmethod
    def read(cls, directory: Path) -> "Progress | None":
        """The journal in a directory, or None where there is none that can be used."""
        try:
            fields = json.loads((directory / JOURNAL_NAME).read_text(encoding="utf-8"))
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
            return cls(fields["fingerprint"], fields["chunks"], splits)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


class CorpusWriter:
    """Writes the files of both splits.

    Args:
        directory: where they are; created by the caller.
        dtype: of the token ids.
        progress: where to go on; files are cut to it or begun.
    """

    def __init__(self, directory: Path, dtype: np.dtype, progress: Progress):
        self.progress = progress
        self._directory = directory
        self._dtypes = {"tokens": dtype, "sentences": _OFFSET, "documents": _OFFSET}
        self._files: dict[tuple[str, str], io.FileIO] = {}

    def __enter__(self) -> "CorpusWriter":
        for split in SPLITS:
            for kind in FILE_KINDS:
                path = self._directory / split_file(split, kind)
                self._files[split, kind] = open(path, "ab", buffering=0)
        self._cut_to_progress()
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files.values():
            file.close()

    def append(self, source: int, encoded: dict[str, EncodedSplit]) -> None:
        """Writes what the next chunk holds, which is of one source."""
        for split, part in encoded.items():
            self._append_split(split, source, part)
        self.progress.chunks += 1

    def _append_split(self, split: str, source: int, part: EncodedSplit) -> None:
        progress = self.progress.splits[split]
        before = progress.total()
        # A document that goes on from the chunk before has its start on file already.
        is_new = part.documents[:, 0] != progress.last_document
        self._write(split, "tokens", part.tokens)
        self._write(split, "sentences", _starts(before.tokens, part.sentence_lengths))
        self._write(split, "documents", _starts(before.sentences, part.documents[:, 1])[is_new])
        for row, new in zip(part.documents.tolist(), is_new.tolist(), strict=True):
            if new:
                progress.last_document, progress.last_source = row[0], source
                progress.last_counts = Counts()
            counts = Counts(int(new), *row[1:])
            progress.last_counts.add(counts)
            progress.counts[source].add(counts)

    def write_journal(self) -> None:
        """Puts on disk what is written so far, then says so in the journal."""
        for file in self._files.values():
            os.fsync(file.fileno())
        self.progress.write(self._directory)

    def move_last_document(self, origin: str, target: str) -> None:
        """Moves the last document of one split to the end of the other one.

        The journal is written before the origin gets shorter, so that at any time the files hold
        at least what the journal says.
        """
        giver, taker = self.progress.splits[origin], self.progress.splits[target]
        moved, before, remaining = giver.last_counts, taker.total(), giver.total()
        remaining.subtract(moved)
        starts = self._read(origin, "sentences", remaining.sentences)
        self._write(target, "tokens", self._read(origin, "tokens", remaining.tokens))
        self._write(target, "sentences", starts - remaining.tokens + before.tokens)
        self._write(target, "documents", np.array([before.sentences]))
        giver.counts[giver.last_source].subtract(moved)
        taker.counts[giver.last_source].add(moved)
        giver.last_counts = Counts()
        self.write_journal()
        self._cut_to_progress()

    def finish(self) -> None:
        """Writes the end of the last sentence and of the last document; the files are whole."""
        for split, progress in self.progress.splits.items():
            total = progress.total()
            self._write(split, "sentences", np.array([total.tokens]))
            self._write(split, "documents", np.array([total.sentences]))
        for file in self._files.values():
            os.fsync(file.fileno())

    def _write(self, split: str, kind: str, values: np.ndarray) -> None:
        data = memoryview(values.astype(self._dtypes[kind]).tobytes())
        while data:  # a write may stop early, as on a disk that is nearly full
            data = data[self._files[split, kind].write(data) :]

    def _read(self, split: str, kind: str, start: int) -> np.ndarray:
        path = self._directory / split_file(split, kind)
        dtype = self._dtypes[kind]
        return np.fromfile(path, dtype, offset=start * dtype.itemsize)

    def _cut_to_progress(self) -> None:
        for split, progress in self.progress.splits.items():
            for kind, dtype in self._dtypes.items():
                file = self._files[split, kind]
                size = getattr(progress.total(), kind) * dtype.itemsize
                if os.fstat(file.fileno()).st_size < size:
                    raise UserError(
                        f"{self._directory / split_file(split, kind)}: shorter than the {size} "
                        f"bytes that the journal says; remove {self._directory} and start again"
                    )
                file.truncate(size)


def _starts(first: int, lengths: np.ndarray) -> np.ndarray:
    """Where things of these lengths [S] begin if the first begins at `first`: int64 [S]."""
    return first + np.cumsum(lengths) - lengths
