"""A corpus on disk: memory-mapped token ids with sentence and document offsets.

    CORPUS/manifest.json            counts, settings, checksums; without it a corpus is unfinished
    CORPUS/tokenizer/               the tokenizer that made the ids
    CORPUS/train.tokens.bin         uint16 (uint32 if V > 65,536) [tokens]
    CORPUS/train.sentences.bin      int64 [sentences + 1]
    CORPUS/train.documents.bin      int64 [documents + 1]
    CORPUS/validation.tokens.bin, …   likewise

All numbers are little-endian; what they mean stands at `CorpusSplit`.
"""

import dataclasses
from pathlib import Path

import numpy as np

from bert_jax.data.pretraining.corpus_manifest import MANIFEST_NAME, SPLITS, Manifest, file_entry
from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch
from bert_jax.tokenization.interface import Tokenizer

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
        manifest: what it says about itself.
        splits: "train" and "validation".
    """

    path: Path
    manifest: Manifest
    splits: dict[str, CorpusSplit]

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = True) -> "Corpus":
        """Maps the files of a corpus into memory.

        A corpus in a bucket is copied to this machine first, as only files of a disk can be
        mapped; see `files.fetch`.

        Args:
            path: the directory that `bert-jax prepare` wrote.
            verify: whether checksums are compared, which reads every byte once (about a second
                per GB); file sizes are compared in any case.

        Raises:
            UserError: there is no corpus, it is unfinished, damaged or of another version.
        """
        path = as_path(path)
        manifest = Manifest.read(path)  # of an unfinished one, nothing is copied
        path = fetch(path, [*manifest.files, MANIFEST_NAME])
        for name, expected in manifest.files.items():
            _check_file(path / name, expected.bytes, expected.sha256 if verify else None)
        return cls(path, manifest, {split: _open_split(path, manifest, split) for split in SPLITS})

    def tokenizer(self) -> Tokenizer:
        """Loads the tokenizer that the corpus was made with."""
        from bert_jax.tokenization import load_tokenizer

        return load_tokenizer(self.path / TOKENIZER_DIRECTORY)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises UserError unless the tokenizer gives every text the ids that it has here."""
        if tokenizer.fingerprint() != self.manifest.tokenizer_fingerprint:
            raise UserError(
                f"{self.path}: the corpus was made with another tokenizer "
                f"({self.manifest.tokenizer_fingerprint}, {self.manifest.vocab_size} ids) than the "
                f"given one ({tokenizer.fingerprint()}, {tokenizer.vocab_size} ids); use the one "
                f"in {self.path / TOKENIZER_DIRECTORY} or prepare the corpus again"
            )


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest dtype that holds every id: little-endian uint16 or uint32."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def split_file(split: str, kind: str) -> str:
    """Name of one of the files of a split; `kind` is one of `FILE_KINDS`."""
    return f"{split}.{kind}.bin"


def _check_file(path: Path, size: int, sha256: str | None) -> None:
    remedy = "prepare the corpus again or copy the file anew (of one in a bucket, remove this copy)"
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
