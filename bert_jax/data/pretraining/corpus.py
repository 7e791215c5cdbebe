"""A corpus on disk: memory-mapped token ids with sentence and document offsets.

    CORPUS/manifest.json              counts, settings, checksums; written last
    CORPUS/tokenizer/                 the tokenizer that made the ids
    CORPUS/train.tokens.bin           uint16 (uint32 if V > 65,536) [tokens]
    CORPUS/train.sentences.bin        int64 [sentences + 1]
    CORPUS/train.documents.bin        int64 [documents + 1]
    CORPUS/validation.tokens.bin, …   likewise

All numbers are little-endian; their meaning is documented at `CorpusSplit`.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch, reachable, read_json_object, write_atomically
from bert_jax.tokenization.interface import BRACKETED, Tokenizer

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 1
SPLITS = ("train", "validation")


@dataclasses.dataclass(slots=True)
class Counts:
    """Numbers of documents, sentences and tokens.

    Attributes:
        documents: documents with at least one token.
        sentences: sentences with at least one token, each piece of a cut one counted.
        tokens: token ids, without special tokens.
        unknown_tokens: how many of them are [UNK].
        cut_sentences: sentences above the longest length, which were cut.
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
    """The content of `manifest.json`.

    Attributes:
        format_version: layout of the files; `FORMAT_VERSION`.
        fingerprint: 16 hex digits that change with text, options and tokenizer.
        settings: the options it was made with, for people.
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
        """Writes the manifest atomically."""
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
            exists, is_directory = path.is_file(), directory.is_dir()
        if not exists:
            what = "has no manifest.json" if is_directory else "does not exist"
            raise UserError(
                f"{directory}: not a finished corpus: it {what}; run bert-jax prepare (again)"
            )
        fields = read_json_object(path, remedy="prepare the corpus again")
        try:
            version = fields["format_version"]
            if "held_out" in fields["splits"]:
                raise UserError(
                    f"{path}: its evaluation split is called held_out, as in earlier versions of "
                    "bert_jax; prepare the corpus again"
                )
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
        except (KeyError, TypeError, AttributeError) as error:
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


FILE_KINDS = ("tokens", "sentences", "documents")
TOKENIZER_DIRECTORY = "tokenizer"


@dataclasses.dataclass(frozen=True)
class CorpusSplit:
    """The documents of one split ("train" or "validation"); arrays are memory maps.

    Attributes:
        tokens: uint16 or uint32 [tokens], ids without special tokens, documents in order.
        sentence_offsets: int64 [sentences + 1], where in `tokens` each sentence begins.
        document_offsets: int64 [documents + 1], which sentence each document begins with.
        source_documents: int64 [sources + 1], which document each source of a mixture begins with.
        source_weights: float64 [sources].
    """

    tokens: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    source_documents: np.ndarray
    source_weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A finished corpus.

    Attributes:
        path: its directory.
        manifest: its counts, settings and checksums.
        splits: "train" and "validation".
    """

    path: Path
    manifest: Manifest
    splits: dict[str, CorpusSplit]

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = True) -> "Corpus":
        """Maps the files of a corpus into memory.

        A corpus in a bucket is copied to this machine first, since only local files can be
        mapped; see `files.fetch`.

        Args:
            path: the directory that `bert-jax prepare` wrote.
            verify: whether checksums are compared, which reads every byte once (about a second
                per GB); file sizes are always compared.

        Raises:
            UserError: there is no corpus, it is unfinished, damaged or of another version.
        """
        path = as_path(path)
        manifest = Manifest.read(path)  # an unfinished corpus is not copied
        path = fetch(path, [*manifest.files, MANIFEST_NAME])
        for name, expected in manifest.files.items():
            _check_file(path / name, expected.bytes, expected.sha256 if verify else None)
        return cls(path, manifest, {split: _open_split(path, manifest, split) for split in SPLITS})

    def tokenizer(self) -> Tokenizer:
        """Loads the tokenizer that the corpus was made with."""
        from bert_jax.tokenization import load_tokenizer

        return load_tokenizer(self.path / TOKENIZER_DIRECTORY)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises UserError unless the corpus was made with an equal tokenizer."""
        if tokenizer.fingerprint() != self.manifest.tokenizer_fingerprint:
            raise UserError(
                f"{self.path}: the corpus was made with another tokenizer "
                f"({self.manifest.tokenizer_fingerprint}, {self.manifest.vocab_size} ids) than "
                f"this one ({tokenizer.fingerprint()}, {tokenizer.vocab_size} ids); use the one "
                f"in {self.path / TOKENIZER_DIRECTORY} or prepare the corpus again"
            )


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest dtype that holds every id: little-endian uint16 or uint32."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def split_file(split: str, kind: str) -> str:
    """Name of one of the files of a split; `kind` is one of `FILE_KINDS`."""
    return f"{split}.{kind}.bin"


def _check_file(path: Path, size: int, sha256: str | None) -> None:
    remedy = (
        "prepare the corpus again or copy the file again (if it is a copy from a bucket, remove it)"
    )
    if not path.is_file():
        raise UserError(f"{path}: this file of the corpus is missing; {remedy}")
    if path.stat().st_size != size:
        raise UserError(
            f"{path}: damaged: {path.stat().st_size} bytes where the manifest says {size}; {remedy}"
        )
    if sha256 is not None and file_entry(path).sha256 != sha256:
        raise UserError(f"{path}: damaged: its checksum is not that of the manifest; {remedy}")


def _open_split(path: Path, manifest: Manifest, split: str) -> CorpusSplit:
    dtypes = (np.dtype(manifest.dtype).newbyteorder("<"), np.dtype("<i8"), np.dtype("<i8"))
    tokens, sentences, documents = (
        _map(path / split_file(split, kind), dtype)
        for kind, dtype in zip(FILE_KINDS, dtypes, strict=True)
    )
    counts = [source.splits[split].documents for source in manifest.sources]
    return CorpusSplit(
        tokens=tokens,
        sentence_offsets=sentences,
        document_offsets=documents,
        source_documents=np.cumsum([0, *counts], dtype=np.int64),
        source_weights=np.array([source.weight for source in manifest.sources], np.float64),
    )


def _map(path: Path, dtype: np.dtype) -> np.ndarray:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r")


# Several documents, so that another one can be drawn for NSP.
_DOCUMENTS, _SENTENCES, _TOKENS = 8, 64, 16


def synthetic_tokenizer(vocab_size: int) -> Tokenizer:
    """A WordPiece tokenizer with `vocab_size` ids, for planning without a corpus."""
    from bert_jax.tokenization import BertSwitches, WordPieceTokenizer

    words = (f"word{number}" for number in range(vocab_size - len(BRACKETED)))
    return WordPieceTokenizer.from_vocabulary([*BRACKETED, *words], BertSwitches(True, None, True))


def synthetic_corpus(tokenizer: Tokenizer) -> Corpus:
    """A small corpus in memory, for the shapes of its batches; both splits have the same text."""
    dtype = token_dtype(tokenizer.vocab_size)
    sentences = _DOCUMENTS * _SENTENCES
    split = CorpusSplit(
        tokens=np.full(sentences * _TOKENS, tokenizer.vocab_size - 1, dtype),
        sentence_offsets=np.arange(sentences + 1, dtype=np.int64) * _TOKENS,
        document_offsets=np.arange(_DOCUMENTS + 1, dtype=np.int64) * _SENTENCES,
        source_documents=np.array([0, _DOCUMENTS], np.int64),
        source_weights=np.ones(1),
    )
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        fingerprint="",
        settings={},
        tokenizer_fingerprint=tokenizer.fingerprint(),
        vocab_size=tokenizer.vocab_size,
        dtype=dtype.name,
        splits={},
        sources=(),
        files={},
    )
    return Corpus(Path("synthetic"), manifest, dict.fromkeys(SPLITS, split))
