"""One chunk of text to token ids: a pure function, run in worker processes."""

import dataclasses
import itertools

import numpy as np

from bert_jax.data.pretraining.corpus import token_dtype
from bert_jax.data.pretraining.corpus_manifest import SPLITS
from bert_jax.data.pretraining.preparation.chunks import Chunk
from bert_jax.data.pretraining.preparation.sentences import split_sentences
from bert_jax.tokenization.interface import Tokenizer

SENTENCE_TOKENS = 512
"""A longer sentence is cut into pieces of so many tokens: every token of it can be reached."""

# Sentences are encoded so many at a time, as the tokenizer's own structures are large.
_BATCH_SENTENCES = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedSplit:
    """What a chunk holds of one split.

    Attributes:
        tokens: uint16 or uint32 [T], ids of all sentences.
        sentence_lengths: int64 [S], each in [1, 512].
        documents: int64 [D, 5], in order, for each document with at least one sentence here: its
            number, then sentences, tokens, unknown tokens and cut sentences.
    """

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    documents: np.ndarray


def encode_chunk(
    chunk: Chunk, tokenizer: Tokenizer, mode: str, language: str
) -> dict[str, EncodedSplit]:
    """Splits a chunk into sentences and encodes them.

    Args:
        chunk: the text.
        tokenizer: gives the ids.
        mode: see `split_sentences`.
        language: see `split_sentences`.

    Returns:
        For "train" and "validation" what the chunk has of it; sentences without a token are dropped.
    """
    encoded = {}
    for split in SPLITS:
        sentences: list[str] = []
        documents: list[int] = []
        for block in chunk.blocks:
            if block.split == split:
                for paragraph in block.text.split("\n"):
                    sentences += split_sentences(paragraph, mode, language)
                documents += [block.document] * (len(sentences) - len(documents))
        encoded[split] = _encode(sentences, np.array(documents, np.int64), tokenizer)
    return encoded


def _encode(sentences: list[str], documents: np.ndarray, tokenizer: Tokenizer) -> EncodedSplit:
    """Encodes sentences [S], each of the document with the number in `documents` [S]."""
    dtype = token_dtype(tokenizer.vocab_size)
    batches = [np.zeros(0, dtype)]
    lengths = np.zeros(len(sentences), np.int64)
    for start in range(0, len(sentences), _BATCH_SENTENCES):
        ids = tokenizer.encode_sentences(sentences[start : start + _BATCH_SENTENCES])
        batch_lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        lengths[start : start + len(ids)] = batch_lengths
        batches.append(
            np.fromiter(itertools.chain.from_iterable(ids), dtype, int(batch_lengths.sum()))
        )
    tokens = np.concatenate(batches)
    is_unknown = tokens == tokenizer.special_ids.unk
    unknown = np.diff(np.concatenate([[0], np.cumsum(is_unknown)])[_offsets(lengths)])
    kept = lengths > 0
    lengths, unknown, documents = lengths[kept], unknown[kept], documents[kept]
    pieces = -(-lengths // SENTENCE_TOKENS)
    return EncodedSplit(
        tokens=tokens,
        sentence_lengths=_cut_lengths(lengths, pieces),
        documents=_document_rows(documents, [pieces, lengths, unknown, pieces > 1]),
    )


def _offsets(lengths: np.ndarray) -> np.ndarray:
    """Where things of these lengths [S] begin, and where the last one ends: int64 [S + 1]."""
    return np.concatenate([[0], np.cumsum(lengths)])


def _cut_lengths(lengths: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """Lengths of the pieces, int64 [sum(pieces)]: full ones and what remains."""
    cut = np.full(int(pieces.sum()), SENTENCE_TOKENS, np.int64)
    cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * SENTENCE_TOKENS
    return cut


def _document_rows(documents: np.ndarray, columns: list[np.ndarray]) -> np.ndarray:
    """Sums of each column [S] over the sentences of each document; see `EncodedSplit.documents`."""
    numbers, first = np.unique(documents, return_index=True)
    if not len(numbers):
        return np.zeros((0, 1 + len(columns)), np.int64)
    sums = [np.add.reduceat(column.astype(np.int64), first) for column in columns]
    return np.stack([numbers, *sums], axis=1)
