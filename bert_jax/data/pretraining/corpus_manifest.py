"""`manifest.json` of a corpus: what is in it, from what and how it was made, and checksums."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

from bert_jax.errors import UserError
from bert_jax.files import reachable, write_atomically

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 1
SPLITS = ("train", "validation")


@dataclasses.dataclass(slots=True)
class Counts:
    """How much text there is.

    Attributes:
        documents: documents with at least one token.
        sentences: sentences with at least one token, each piece of a cut one counted.
        tokens: token ids, special tokens not among them.
        unknown_tokens: how many of them are [UNK].
        cut_sentences: sentences that were longer than a piece may be, and cut.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    cut_sentences: int = 0

    def add(self, other: "Counts") -> None:
        """Adds the counts of other text; `subtract` takes them away."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def subtract(self, other: "Counts") -> None:
        """Undoes `add`."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) - getattr(other, field.name))


@dataclasses.dataclass(frozen=True, slots=True)
class SourceCounts:
    """One source of the mixture: its share and how much text each split has of it."""

    source: str
    weight: float
    splits: dict[str, Counts]


@dataclasses.dataclass(frozen=True, slots=True)
class FileEntry:
    """Size and checksum of one file of the corpus."""

    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """What stands in `manifest.json`.

    Attributes:
        format_version: layout of the files; `FORMAT_VERSION`.
        fingerprint: 16 hex digits of everything the corpus was made from and how.
        settings: how it was made, for people.
        tokenizer_fingerprint: `Tokenizer.fingerprint()` of the tokenizer in `tokenizer/`.
        vocab_size: ids are below it.
        dtype: of the token ids, "uint16" or "uint32".
        splits: counts of "train" and "validation".
        sources: the same for each source, in the order of the documents.
        files: by path relative to the corpus, all files but the manifest.
    """

    format_version: int
    fingerprint: str
    settings: dict[str, object]
    tokenizer_fingerprint: str
    vocab_size: int
    dtype: str
    splits: dict[str, Counts]
    sources: tuple[SourceCounts, ...]
    files: dict[str, FileEntry]

    def write(self, directory: Path) -> None:
        """Writes the manifest; when it stands, all of it stands."""
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"
        write_atomically(directory / MANIFEST_NAME, text.encode())
        sync_directory(directory)

    @classmethod
    def read(cls, directory: Path) -> "Manifest":
        """Reads the manifest of a corpus.

        Raises:
            UserError: there is none, it is damaged, or it is of another format version.
        """
        path = directory / MANIFEST_NAME
        with reachable(path):
            is_there, is_directory = path.is_file(), directory.is_dir()
        if not is_there:
            what = "has no manifest.json" if is_directory else "does not exist"
            raise UserError(
                f"{directory}: not a finished corpus: it {what}; run bert-jax prepare (again)"
            )
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            version = fields["format_version"]
            if version != FORMAT_VERSION:
                raise UserError(
                    f"{path}: format version {version!r}, but this bert_jax reads version "
                    f"{FORMAT_VERSION}; prepare the corpus again or use the other version"
                )
            return cls(
                **fields
                | {
                    "splits": _counts(fields["splits"]),
                    "sources": tuple(
                        SourceCounts(entry["source"], entry["weight"], _counts(entry["splits"]))
                        for entry in fields["sources"]
                    ),
                    "files": {name: FileEntry(**entry) for name, entry in fields["files"].items()},
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: damaged ({error}); prepare the corpus again") from error


def _counts(fields: dict[str, dict[str, int]]) -> dict[str, Counts]:
    return {split: Counts(**fields[split]) for split in SPLITS}


def file_entry(path: Path) -> FileEntry:
    """Size and SHA-256 of a file."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(os.fstat(file.fileno()).st_size, digest)


def sync_directory(directory: Path) -> None:
    """Makes sure that names in a directory (new files, renames) are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
