"""A corpus on disk: memory-mapped token ids with sentence and document offsets.

    CORPUS/manifest.json              counts, settings, checksums (also its own); written last
    CORPUS/tokenizer/                 the tokenizer that made the ids
    CORPUS/train.tokens.bin           uint16 (uint32 if V > 65,536) [tokens]
    CORPUS/train.sentences.bin        int64 [sentences + 1]
    CORPUS/train.documents.bin        int64 [documents + 1]
    CORPUS/validation.tokens.bin, …   the same for the validation split

All numbers are little-endian; their meaning is documented at `CorpusSplit`.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import numpy as np

from bert_jax.errors import UserError
from bert_jax.files import as_path, below, fetch, reachable, read_json_object, write_atomically
from bert_jax.files.journal import checksum
from bert_jax.tokenization.description import BRACKETED
from bert_jax.tokenization.interface import Tokenizer

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 1
_CHECKSUM = "checksum"
SPLITS = ("train", "validation")


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of documents, sentences and tokens.

    Attributes:
        documents: documents with at least one token.
        sentences: sentences with at least one token; each piece of a cut sentence counts.
        tokens: token ids, without special tokens.
        unknown_tokens: number of [UNK] among them.
        cut_sentences: sentences that were cut, since they exceed the maximum length.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    cut_sentences: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, key) + getattr(other, key) for key in self.__slots__))


@dataclasses.dataclass(frozen=True, slots=True)
class SourceCounts:
    """One source of the mixture: its weight, and its counts in each split."""

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
        format_version: version of the file layout, `FORMAT_VERSION`.
        fingerprint: 16 hex digits that change with text, options and tokenizer.
        settings: options that the corpus was made with, for people.
        tokenizer_fingerprint: `Tokenizer.fingerprint()` of the tokenizer in `tokenizer/`.
        vocab_size: number of ids.
        dtype: dtype of the token ids, "uint16" or "uint32".
        splits: counts of "train" and "validation".
        sources: counts of each source, in the order of the documents.
        files: sizes and checksums by path relative to the corpus, of all files but the manifest.
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
        """Writes the manifest atomically, with its own checksum."""
        fields = dataclasses.asdict(self)
        fields[_CHECKSUM] = checksum(fields)
        text = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
        write_atomically(directory / MANIFEST_NAME, text.encode())
        sync_directory(directory)

    @classmethod
    def read(cls, directory: Path) -> "Manifest":
        """Reads the manifest of a corpus.

        Raises:
            UserError: it does not exist, is damaged, or has another format version.
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
            if version != FORMAT_VERSION:
                raise UserError(
                    f"{path}: format version {version!r}, but this bert_jax reads version "
                    f"{FORMAT_VERSION}; prepare the corpus again or use the other version"
                )
            if fields.pop(_CHECKSUM) != checksum(fields):
                raise ValueError("its checksum differs")
            manifest = cls(
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
            if manifest.dtype not in ("uint16", "uint32"):
                raise ValueError(f"the dtype of the ids is {manifest.dtype!r:.80}")
            for name in manifest.files:
                below(directory, name, path)
            return manifest
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            problem = f"{path}: damaged, or of an earlier version of bert_jax ({error})"
            raise UserError(f"{problem}; prepare the corpus again") from error


def _counts(fields: dict[str, dict[str, int]]) -> dict[str, Counts]:
    return {split: Counts(**fields[split]) for split in SPLITS}


def file_entry(path: Path) -> FileEntry:
    """Size and SHA-256 of a file."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(os.fstat(file.fileno()).st_size, digest)


def sync_directory(directory: Path) -> None:
    """Makes sure that the names in a directory (new files, renames) are on disk."""
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
        sentence_offsets: int64 [sentences + 1], position in `tokens` of the start of each sentence.
        document_offsets: int64 [documents + 1], first sentence of each document.
        source_documents: int64 [sources + 1], first document of each source of a mixture.
        source_weights: float64 [sources], weight of each source.
    """

    tokens: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    source_documents: np.ndarray
    source_weights: np.ndarray

    @property
    def document_tokens(self) -> np.ndarray:
        """Number of tokens of each document, int64 [documents]."""
        return np.diff(np.asarray(self.sentence_offsets)[np.asarray(self.document_offsets)])


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A finished corpus.

    Attributes:
        path: directory of the corpus.
        manifest: counts, settings and checksums.
        splits: the splits "train" and "validation".
    """

    path: Path
    manifest: Manifest
    splits: dict[str, CorpusSplit]

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = True) -> "Corpus":
        """Maps the files of a corpus into memory.

        A corpus in a bucket is first copied to the local machine, since only local files can be
        mapped; see `files.fetch`.

        Args:
            path: directory written by `bert-jax prepare`.
            verify: whether checksums are compared, which reads every byte once (about a second
                per GB); file sizes are always compared.

        Raises:
            UserError: the corpus does not exist, is unfinished, damaged or of another version.
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
                f"this one ({tokenizer.fingerprint()}, {tokenizer.vocab_size} ids); use the "
                f"tokenizer in {self.path / TOKENIZER_DIRECTORY} or prepare the corpus again"
            )


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest dtype for all ids: little-endian uint16 or uint32."""
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
            f"{path}: damaged: {path.stat().st_size} bytes, but {size} in the manifest; {remedy}"
        )
    if sha256 is not None and file_entry(path).sha256 != sha256:
        raise UserError(f"{path}: damaged: its checksum differs from the manifest; {remedy}")


def _open_split(path: Path, manifest: Manifest, split: str) -> CorpusSplit:
    dtypes = (np.dtype(manifest.dtype).newbyteorder("<"), np.dtype("<i8"), np.dtype("<i8"))
    tokens, sentences, documents = (
        _map(path / split_file(split, kind), dtype)
        for kind, dtype in zip(FILE_KINDS, dtypes, strict=True)
    )
    counts = [source.splits[split].documents for source in manifest.sources]
    total = manifest.splits[split]
    sizes = [len(tokens), len(sentences) - 1, len(documents) - 1, len(documents) - 1]
    if sizes != [total.tokens, total.sentences, total.documents, sum(counts)]:
        raise UserError(
            f"{path}: the files of the split {split} and {MANIFEST_NAME} are not of one corpus; "
            "prepare the corpus again"
        )
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
    try:
        return np.memmap(path, dtype, mode="r")
    except ValueError as error:  # the size is not a multiple of the item size
        raise UserError(f"{path}: damaged: {error}; prepare the corpus again") from error


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
