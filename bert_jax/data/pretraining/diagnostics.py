"""What a training says of its examples: how much they show, and targets that teach nothing."""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.pretraining.readable import LABELS
from bert_jax.tokenization.interface import Tokenizer

# Of larger splits every n-th document is counted, so that a training starts at once.
MOST_TOKENS = 5_000_000
# Examples that are drawn, and the shares from which there is a warning.
_SAMPLE = 4096
_NEARLY_ALL, _MOST = 0.9, 0.5


def shown_share(
    split: CorpusSplit,
    tokenizer: Tokenizer,
    options: PretrainingOptions,
    *,
    most_tokens: int = MOST_TOKENS,
) -> float:
    """The share of the tokens of a split that are in at least one example of the first epoch.

    It is below 1, see `docs/pretraining.md`, and exact for a split of at most `most_tokens` tokens.
    Of a larger one, every n-th document is planned as if they were the whole split, with n such
    that about as many tokens remain. What packing leaves out (`packing.PackingStatistics`) counts
    as shown.

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


def degenerate_targets(
    split: CorpusSplit, examples: PretrainingBatches, *, packing: bool
) -> Iterator[str]:
    """Lines about the training examples, each with a remedy; no token is read.

    Args:
        split: the training documents.
        examples: their examples, in random order, of which the first ones are drawn.
        packing: whether a row holds several examples.
    """
    numbers = np.arange(min(_SAMPLE, examples.examples_per_epoch))
    objective, length = examples.options.objective, examples.length
    single = float(np.mean(np.diff(split.document_offsets) == 1))
    if objective in LABELS:
        shares = np.bincount(examples.segments(numbers).labels, minlength=2) / len(numbers)
        label = int(shares.argmax())
        cause = f"{single:.0%} of the documents have one sentence"
        remedy = "prepare documents of several sentences (data.format, data.sentences)"
        if single < _MOST:
            median = np.median(np.diff(split.sentence_offsets))
            cause = f"the median sentence has {median:.0f} tokens, and a row {length}"
            remedy = "prepare shorter ones (data.sentences), or raise data.length"
        if shares[label] >= _NEARLY_ALL:
            yield (
                f"in {shares[label]:.0%} of the pairs {LABELS[objective][label]}: {cause}; "
                f"{remedy}, or set data.objective=none"
            )
        elif single >= _NEARLY_ALL:
            yield f"{cause}, whose halves are the pairs; {remedy}, or set data.objective=none"
    padding = 1 - float(examples.lengths(numbers).mean()) / length
    if padding > _MOST and not packing:
        yield (
            f"{padding:.0%} of the tokens of the rows are padding: most documents are shorter than "
            f"{length} tokens; set data.packing=true, or lower data.length"
        )
