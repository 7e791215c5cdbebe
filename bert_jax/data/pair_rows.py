"""Rows of an encoder-decoder: sources, and targets that are shifted by one; several pairs a row.

Packed rows need few steps and one shape. They are packed once, from pairs in random order, so that
every epoch has each pair once, and the rows are examples of `LabelledBatches` like any other: it
shuffles them in each epoch, and each host makes its own. (Pre-training packs each group of rows
anew, see `pretraining.packing`, but leaves examples out.)
"""

import dataclasses

import numpy as np

from bert_jax.data.padding import Sequences, bucket_length, joined
from bert_jax.data.pipeline import Batch
from bert_jax.data.randomness import derive_key, permute
from bert_jax.data.row_packing import best_fit_decreasing
from bert_jax.tokenization import Tokenizer

# Pairs that are packed together: the last row of each such part is not full.
_PAIRS_PER_PART = 1 << 14


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedPairs:
    """n sources and targets as token ids, and the shape of their rows.

    A row for T source tokens has U target tokens, in the ratio of the two limits: so one number
    says whether pairs fit, and batches have few shapes.

    Attributes:
        sources: the sources.
        targets: the targets, each with the token at its end.
        source_length: the largest T.
        target_length: the largest U.
        start_id: the first token that a decoder reads.
        tokenizer: tokenizer that defines the padding.
    """

    sources: Sequences
    targets: Sequences
    source_length: int
    target_length: int
    start_id: int
    tokenizer: Tokenizer

    @property
    def sizes(self) -> np.ndarray:
        """The least T of a row for each pair, so that also its target fits, int64 [n]."""
        by_target = -(-self.targets.lengths * self.source_length // self.target_length)
        return np.maximum(np.maximum(self.sources.lengths, by_target), 1)

    def row_length(self, length: int) -> int:
        """U for T = `length`."""
        needed = -(-length * self.target_length // self.source_length)
        return bucket_length(needed, self.target_length)


class PairRows:
    """Pairs in rows.

    Every batch has these keys (B rows, T source tokens, U target tokens):

    | key | dtype, shape | meaning |
    |---|---|---|
    | input_ids | int32 [B, T] | the sources of the row, then padding |
    | attention_mask | int32 [B, T] | 1 for tokens; not in packed rows |
    | segment_ids | int32 [B, T] | number of the pair in the row, from 1; 0 for padding; packed |
    | position_ids | int32 [B, T] | 0, 1, … from the start of each source on; packed |
    | decoder/input_ids | int32 [B, U] | for each label the token before it, then padding |
    | decoder/labels | int32 [B, U] | the targets of the row, then padding |
    | decoder/weights | float32 [B, U] | 1 for tokens, 0 for padding |
    | decoder/segment_ids | int32 [B, U] | the pair's number as in `segment_ids`; packed |
    | decoder/position_ids | int32 [B, U] | 0, 1, … from the start of each target on; packed |

    Attributes:
        lengths: int64 [n], the least T of each row.
    """

    def __init__(self, pairs: EncodedPairs, *, packed: bool, seed: int) -> None:
        """Takes the pairs, whether a row may have several, and the seed of their order."""
        self._pairs, self._is_packed = pairs, packed
        sizes = pairs.sizes
        self._order, rows = np.arange(len(sizes)), np.arange(len(sizes))
        if packed:
            self._order, rows = _pack(sizes, pairs.source_length, seed)
        self._counts = np.bincount(rows)  # pairs of each row
        self._starts = np.cumsum(self._counts) - self._counts
        self.lengths = np.add.reduceat(sizes[self._order], self._starts)

    def batch(self, rows: np.ndarray, length: int) -> Batch:
        """A batch of rows, int64 [B], -1 for a row of padding; `length` is T."""
        data, tokenizer = self._pairs, self._pairs.tokenizer
        counts = np.where(rows < 0, 0, self._counts[rows])
        row_of = np.repeat(np.arange(len(rows)), counts)
        numbers = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        pairs = self._order[np.repeat(self._starts[rows], counts) + numbers]

        def side(texts: Sequences, length: int) -> Batch:
            padded = texts.pad(pairs, int(texts.lengths[pairs].max(initial=1)), tokenizer)
            return joined(padded, row_of, (len(rows), length), tokenizer.padding_id)

        source, target = side(data.sources, length), side(data.targets, data.row_length(length))
        labels, is_token = target["input_ids"], target["segment_ids"] > 0
        before = np.where(target["position_ids"] == 0, data.start_id, np.roll(labels, 1, axis=1))
        batch = {
            "input_ids": source["input_ids"],
            "decoder/input_ids": np.where(is_token, before, tokenizer.padding_id),
            "decoder/labels": labels,
            "decoder/weights": is_token.astype(np.float32),
        }
        if not self._is_packed:
            return {**batch, "attention_mask": source["segment_ids"]}
        names = "segment_ids", "position_ids"
        ends = {f"decoder/{name}": target[name] for name in names}
        return {**batch, **{name: source[name] for name in names}, **ends}


def _pack(sizes: np.ndarray, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs in the order of their rows, and the row of each, int64 [n], ascending.

    Args:
        sizes: size of each pair, int64 [n], at least 1.
        length: the size of a row.
        seed: seed of the order of the pairs.
    """
    order = permute(np.arange(len(sizes)), len(sizes), derive_key(seed))
    rows, first = np.empty_like(order), 0
    for start in range(0, len(order), _PAIRS_PER_PART):
        part = slice(start, start + _PAIRS_PER_PART)
        rows[part] = first + best_fit_decreasing(sizes[order[part]], lambda size: length)
        first = int(rows[part].max()) + 1
    by_row = np.argsort(rows, kind="stable")
    return order[by_row], rows[by_row]
