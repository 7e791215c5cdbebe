"""Encoded batches → the files of a corpus."""

import contextlib
import itertools
import os
from collections.abc import Iterable
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
)
from bert_jax.data.pretraining.preparation.encoding import EncodedBatch
from bert_jax.data.pretraining.preparation.shards import Shard
from bert_jax.errors import UserError
from bert_jax.files import is_remote, reachable

Joined = Iterable[tuple[Shard, EncodedBatch]]
"""The encoded batches of a corpus in their order, see `shards.join_shards`."""

_OFFSET = np.dtype("<i8")
_NAMES = {
    TOKENIZER_DIRECTORY,
    *itertools.starmap(split_file, itertools.product(SPLITS, FILE_KINDS)),
}


def write_splits(
    directory: Path, batches: Joined, dtype: np.dtype, sources: int
) -> dict[str, list[Counts]]:
    """Writes the files of both splits.

    Args:
        directory: a local directory.
        batches: the encoded batches.
        dtype: dtype of the token ids.
        sources: number of sources.

    Returns:
        The counts of each source in each split.
    """
    dtypes = dict(zip(FILE_KINDS, (dtype, _OFFSET, _OFFSET), strict=True))
    counts = {split: [Counts()] * sources for split in SPLITS}
    last: dict[str, tuple[int, int]] = {}
    with contextlib.ExitStack() as opened:
        files = {
            name: opened.enter_context((directory / split_file(*name)).open("wb"))
            for name in itertools.product(SPLITS, FILE_KINDS)
        }

        def write(split: str, kind: str, values: np.ndarray) -> None:
            files[split, kind].write(values.astype(dtypes[kind]).tobytes())

        for shard, encoded in batches:
            for split in SPLITS:
                part = encoded.in_split(split)
                before, numbers = sum(counts[split], Counts()), part.documents[:, 0].tolist()
                is_new = np.ones(len(numbers), bool)
                if numbers:  # the first document may continue from the batch before
                    is_new[0] = last.get(split) != (shard.number, numbers[0])
                    last[split] = (shard.number, numbers[-1])
                write(split, "tokens", part.tokens)
                write(split, "sentences", _starts(before.tokens, part.sentence_lengths))
                starts = _starts(before.sentences, part.documents[:, 2])
                write(split, "documents", starts[is_new])
                added = Counts(int(is_new.sum()), *part.documents[:, 2:].sum(axis=0).tolist())
                counts[split][shard.source] += added
        for split in SPLITS:  # the ends of the last sentence and document
            total = sum(counts[split], Counts())
            write(split, "sentences", np.array([total.tokens]))
            write(split, "documents", np.array([total.sentences]))
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    return counts


def _starts(first: int, lengths: np.ndarray) -> np.ndarray:
    """Start of each sentence or document if the first one starts at `first`: int64 [n]."""
    return first + np.cumsum(lengths) - lengths


def last_document(batches: Joined, *, is_split: bool) -> tuple[int, int] | None:
    """The document that has to move because by chance a split is empty, else None.

    Args:
        batches: the encoded batches.
        is_split: whether the validation split should have documents.

    Returns:
        Number of its shard, and its number in the shard.

    Raises:
        LookupError: there is no document at all.
    """
    train = SPLITS.index("train")
    first: dict[int, tuple[int, int]] = {}
    last: dict[int, tuple[int, int]] = {}
    for shard, encoded in batches:
        for number, split in encoded.documents[:, :2].tolist():
            last[split] = shard.number, number
            first.setdefault(split, last[split])
        if len(last) == len(SPLITS) or (train in last and not is_split):
            return None
    if not last:
        raise LookupError
    [(split, document)] = last.items()
    return None if split == train and first[split] == document else document


def with_moved(batches: Joined, document: tuple[int, int] | None) -> Joined:
    """Moves a document to the other split."""
    for shard, encoded in batches:
        if document is not None and shard.number == document[0]:
            encoded.documents[encoded.documents[:, 0] == document[1], 1] ^= 1
        yield shard, encoded


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
