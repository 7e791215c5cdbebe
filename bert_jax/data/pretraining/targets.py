"""Targets that teach nothing: labels that are nearly always the same, rows that are padding."""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.readable import LABELS

# Examples that are drawn, and the shares from which there is a warning.
_SAMPLE = 4096
_NEARLY_ALL, _MOST = 0.9, 0.5


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
