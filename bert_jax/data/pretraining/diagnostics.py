"""Statistics of a corpus, warnings about its examples, and the examples as text."""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import Corpus, CorpusSplit, Counts
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.tokenization.interface import Tokenizer

LABELS = {
    "nsp": ("the second sentence is the next one", "the second sentence is random"),
    "sop": ("the two are in order", "the two are swapped"),
}

# Of larger splits every n-th document is counted, so that a training starts at once.
MOST_TOKENS = 5_000_000
# Examples that are drawn, and the shares from which there is a warning.
_SAMPLE = 4096
_NEARLY_ALL, _MOST = 0.9, 0.5


def corpus_statistics(corpus: Corpus, length: int) -> dict[str, int | float]:
    """Statistics of a finished corpus, both splits together.

    Args:
        corpus: the corpus.
        length: T, tokens of an example, including special tokens.

    Returns:
        Numbers of documents, sentences and tokens (without special tokens), means and medians, and:

        - cut_sentences: sentences that were cut, since they were too long.
        - unknown_share: fraction of [UNK] among the tokens.
        - padding_share: expected fraction of [PAD] in batches: a document of n tokens takes
          ceil(n / (T - 3)) examples, each with the special tokens of a pair.
        - packed_padding_share: the same with `data.packing`, measured on sentence pairs; a tenth of
          them is short by design.
        - packed_left_out_share: fraction of the pairs that an epoch of packed rows leaves out.

        The last two need a tokenizer with a mask token.
    """
    total = sum(corpus.manifest.splits.values(), Counts())
    sentence_tokens = np.concatenate(
        [np.diff(split.sentence_offsets) for split in corpus.splits.values()]
    )
    document_tokens = np.concatenate([split.document_tokens for split in corpus.splits.values()])
    tokenizer = corpus.tokenizer()
    special_tokens = tokenizer.num_special_tokens(pair=True)
    examples = -(-document_tokens // (length - special_tokens))
    used = total.tokens + special_tokens * examples.sum()
    pair_statistics = {}
    if tokenizer.special_ids.mask is not None:
        pairs = PretrainingOptions(length=length, max_predictions=length)
        batches = PretrainingBatches(corpus.splits["train"], tokenizer, pairs)
        names = "packed_padding_share", "packed_left_out_share"
        pair_statistics = dict(zip(names, PackedBatches(batches).shares(), strict=True))
    return {
        "documents": total.documents,
        "validation_documents": corpus.manifest.splits["validation"].documents,
        "sentences": total.sentences,
        "cut_sentences": total.cut_sentences,
        "tokens": total.tokens,
        "unknown_share": total.unknown_tokens / total.tokens,
        "mean_sentence_tokens": float(sentence_tokens.mean()),
        "median_sentence_tokens": float(np.median(sentence_tokens)),
        "mean_document_tokens": float(document_tokens.mean()),
        "median_document_tokens": float(np.median(document_tokens)),
        "length": length,
        "padding_share": float(1 - used / (examples.sum() * length)),
        **pair_statistics,
    }


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
    that about `most_tokens` tokens remain. What packing leaves out (`PackedBatches.shares`) counts
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
            yield f"{cause}, and its halves are the pairs; {remedy}, or set data.objective=none"
    padding = 1 - float(examples.lengths(numbers).mean()) / length
    if padding > _MOST and not packing:
        yield (
            f"{padding:.0%} of the tokens of the rows are padding: most documents are shorter than "
            f"{length} tokens; set data.packing=true, or lower data.length"
        )


def as_text(batch: Batch, tokenizer: Tokenizer, objective: str) -> str:
    """Formats examples: tokens (masked ones as `shown←original`), lengths and label.

    Args:
        batch: batch of `PretrainingBatches` or `PackedBatches`.
        tokenizer: tokenizer that made the ids.
        objective: "nsp", "sop" or "none".
    """
    blocks = []
    for number in range(len(batch["input_ids"])):
        row = {key: value[number] for key, value in batch.items()}
        if "segment_ids" not in row:
            blocks.append(_example_as_text(row, tokenizer, objective, f"example {number}"))
            continue
        examples = list(_examples_of(row))
        padding = np.count_nonzero(row["segment_ids"] == 0)
        blocks.append(
            f"row {number}: {len(row['segment_ids']) - padding} tokens, {padding} of padding, "
            f"examples: {len(examples)}"
        )
        blocks += [
            _example_as_text(example, tokenizer, objective, f"row {number}, example {index}")
            for index, example in enumerate(examples)
        ]
    return "\n\n".join(blocks)


def _examples_of(row: Batch) -> Iterator[Batch]:
    """The examples of a packed row, each as an unpacked row without padding."""
    is_masked = row["masked_lm_weights"] > 0
    for number in range(1, row["segment_ids"].max() + 1):
        inside = row["segment_ids"] == number
        masked = is_masked & inside[row["masked_lm_positions"]]
        example = {name: row[name][inside] for name in ("input_ids", "token_type_ids")}
        example["attention_mask"] = inside[inside]
        for name, values in row.items():
            if name.startswith(("masked_lm_", "span_")):
                example[name] = values[masked] - inside.argmax() * name.endswith("_positions")
        if "next_sentence_labels" in row:
            example["next_sentence_labels"] = row["next_sentence_labels"][number - 1]
        yield example


def _example_as_text(row: Batch, tokenizer: Tokenizer, objective: str, name: str) -> str:
    length = int(row["attention_mask"].sum())
    pieces = [tokenizer.readable_token(int(token)) for token in row["input_ids"][:length]]
    masked = row["masked_lm_weights"] > 0
    positions, originals = row["masked_lm_positions"][masked], row["masked_lm_ids"][masked]
    for position, original in zip(positions, originals, strict=True):
        pieces[position] += f"←{tokenizer.readable_token(int(original))}"
    second = int(np.sum(row["token_type_ids"]))
    lines = [
        f"{name}: {length} tokens ({length - second} + {second}), "
        f"{len(row['input_ids']) - length} of padding, {len(positions)} masked",
        "  " + " ".join(pieces[: length - second]),
    ]
    if second:
        lines.append("  " + " ".join(pieces[length - second :]))
    if "span_weights" in row:
        lines += _boundaries(row, tokenizer)
    if objective in LABELS:
        label = int(row["next_sentence_labels"])
        lines.append(f"  label {label}: {LABELS[objective][label]}")
    return "\n".join(lines)


def _boundaries(row: Batch, tokenizer: Tokenizer) -> Iterator[str]:
    """The spans that are predicted from the tokens next to them, one a line."""
    spans: dict[tuple[int, int], list[int]] = {}
    for index in np.flatnonzero(row["span_weights"]):
        ends = row["span_left_positions"][index], row["span_right_positions"][index]
        spans.setdefault(ends, []).append(int(row["masked_lm_ids"][index]))
    for ends, ids in spans.items():
        left, right = (tokenizer.readable_token(int(row["input_ids"][end])) for end in ends)
        words = " ".join(map(tokenizer.readable_token, ids))
        yield f"  from {left} and {right}, the tokens next to them: {words}"
