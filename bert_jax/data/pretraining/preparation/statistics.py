"""`bert-jax prepare --dry-run`: the statistics of a corpus, which is then removed."""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.data.pretraining.options import PrepareOptions, PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.data.pretraining.preparation.prepare import prepare


@dataclasses.dataclass(frozen=True, slots=True)
class PreparationStatistics:
    """Statistics of both splits together.

    Attributes:
        documents: number of documents.
        validation_documents: number of documents of the validation split.
        sentences: sentences with at least one token.
        cut_sentences: number of sentences that were cut, since they were too long.
        tokens: number of token ids, without special tokens.
        unknown_share: fraction of [UNK] among them.
        mean_sentence_tokens, median_sentence_tokens: tokens per sentence.
        mean_document_tokens, median_document_tokens: tokens per document.
        length: T, tokens of an example, for `padding_share`.
        padding_share: expected fraction of [PAD] in batches: a document of n tokens takes
            ceil(n / (T - 3)) examples, each with the three special tokens of a pair.
        packed_padding_share: the same with `data.packing`, measured on sentence pairs; a tenth of
            them is short by design.
        packed_left_out_share: fraction of the pairs that an epoch of packed rows leaves out.
    """

    documents: int
    validation_documents: int
    sentences: int
    cut_sentences: int
    tokens: int
    unknown_share: float
    mean_sentence_tokens: float
    median_sentence_tokens: float
    mean_document_tokens: float
    median_document_tokens: float
    length: int
    padding_share: float
    packed_padding_share: float
    packed_left_out_share: float


def statistics(
    options: PrepareOptions,
    *,
    length: int = 128,
    limit: int | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> PreparationStatistics:
    """Prepares a corpus in a temporary directory, measures it and removes it.

    Args:
        options: see `prepare`.
        length: T, tokens of an example, including special tokens.
        limit: maximum number of documents of each source; None for all.
        workers: see `prepare`.
        progress: whether progress is shown on stderr.

    Raises:
        UserError: see `prepare`; or `length` is too small.
    """
    PretrainingOptions(length=length)  # checks the length first
    with tempfile.TemporaryDirectory(prefix="bert-jax-dry-run-") as folder:
        path = Path(folder, "corpus")
        prepare(options, path, workers=workers, limit=limit, progress=progress)
        return corpus_statistics(Corpus.open(path, verify=False), length)


def corpus_statistics(corpus: Corpus, length: int) -> PreparationStatistics:
    """The statistics of a finished corpus; see `statistics`."""
    counts = list(corpus.manifest.splits.values())
    tokens = sum(split.tokens for split in counts)
    sentence_tokens = np.concatenate(
        [np.diff(split.sentence_offsets) for split in corpus.splits.values()]
    )
    document_tokens = np.concatenate([split.document_tokens for split in corpus.splits.values()])
    tokenizer = corpus.tokenizer()
    special_tokens = tokenizer.num_special_tokens(pair=True)
    examples = -(-document_tokens // (length - special_tokens))
    used = tokens + special_tokens * examples.sum()
    pairs = PretrainingOptions(length=length, max_predictions=length)
    packed = PackedBatches(
        PretrainingBatches(corpus.splits["train"], tokenizer, pairs)
    ).statistics()
    return PreparationStatistics(
        documents=sum(split.documents for split in counts),
        validation_documents=corpus.manifest.splits["validation"].documents,
        sentences=sum(split.sentences for split in counts),
        cut_sentences=sum(split.cut_sentences for split in counts),
        tokens=tokens,
        unknown_share=sum(split.unknown_tokens for split in counts) / tokens,
        mean_sentence_tokens=float(sentence_tokens.mean()),
        median_sentence_tokens=float(np.median(sentence_tokens)),
        mean_document_tokens=float(document_tokens.mean()),
        median_document_tokens=float(np.median(document_tokens)),
        length=length,
        padding_share=float(1 - used / (examples.sum() * length)),
        packed_padding_share=1 - packed.filled,
        packed_left_out_share=packed.left_out,
    )
