"""The share of a corpus that one epoch shows: less than all of it, see `docs/pretraining.md`."""

import numpy as np

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.tokenization.interface import Tokenizer

# Of larger splits every n-th document is counted, so that a training starts at once.
MOST_TOKENS = 5_000_000


def shown_share(
    split: CorpusSplit,
    tokenizer: Tokenizer,
    options: PretrainingOptions,
    *,
    most_tokens: int = MOST_TOKENS,
) -> float:
    """The share of the tokens of a split that are in at least one example of the first epoch.

    It is exact for a split of at most `most_tokens` tokens. Of a larger one, every n-th document is
    planned as if they were the whole split, with n such that about as many tokens remain. What
    packing leaves out (`packing.PackingStatistics`) counts as shown.

    Args:
        split: documents; no token is read.
        tokenizer: tokenizer of the corpus.
        options: options of the training.
        most_tokens: maximum number of tokens that are counted one by one.
    """
    sample = _sample(split, -(-len(split.tokens) // most_tokens))
    batches = PretrainingBatches(sample, tokenizer, options)
    segments = batches.segments(np.arange(batches.examples_per_epoch))
    starts = np.concatenate([segments.first_start, segments.second_start])
    ends = np.concatenate([segments.first_end, segments.second_end])
    return _size_of_union(starts, ends) / int(sample.sentence_offsets[-1])


def _sample(split: CorpusSplit, step: int) -> CorpusSplit:
    """Every `step`-th document, as a split without tokens."""
    if step <= 1:
        return split
    sentences, documents = np.asarray(split.sentence_offsets), np.asarray(split.document_offsets)
    chosen = np.arange(0, len(documents) - 1, step)
    counts = np.diff(documents)[chosen]
    document_offsets = np.concatenate([[0], np.cumsum(counts)])
    # The sentences of the chosen documents, one after the other.
    numbers = np.repeat(documents[chosen] - document_offsets[:-1], counts) + np.arange(counts.sum())
    lengths = sentences[numbers + 1] - sentences[numbers]
    return CorpusSplit(
        tokens=split.tokens[:0],
        sentence_offsets=np.concatenate([[0], np.cumsum(lengths)]),
        document_offsets=document_offsets,
        source_documents=np.searchsorted(chosen, split.source_documents),
        source_weights=split.source_weights,
    )


def _size_of_union(starts: np.ndarray, ends: np.ndarray) -> int:
    """The number of integers that lie in at least one range [start, end), int64 [n] each."""
    order = np.argsort(starts)
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    # Each range adds what lies behind all ranges that begin before it.
    before = np.concatenate([starts[:1], ends[:-1]])
    return int(np.maximum(ends - np.maximum(starts, before), 0).sum())
