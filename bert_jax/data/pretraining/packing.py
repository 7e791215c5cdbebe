"""Packed rows: several examples in one row, for pre-training without padding.

Documents end, and a tenth of the examples is short by design; unpacked, the rest of their rows is
padding. A packed row contains as many whole examples as fit. They share only the row: each has
its own [CLS], positions, masks and label, and attends only to itself. (Fine-tuning does not change
its batches, and packs rows inside the model: `models.packed_rows`.)

The data position is still one integer. Rows are divided into groups of `GROUP_ROWS`: row r of a run
is row r mod `GROUP_ROWS` of group r div `GROUP_ROWS`. Group g packs the examples g·pool … (g +
1)·pool - 1 of the run, where `pool` examples fill a group on average; so each group can be computed
without other groups. By chance these examples need slightly more or fewer rows than the group has.
Those that do not fit are left out of that epoch (each epoch is shuffled again). On 154 books that
is 0.4 % of the examples of 512 tokens, and 0.2 % of the examples of 128.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from bert_jax.data import randomness
from bert_jax.data.padding import filled, joined
from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining import masking
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.row_packing import best_fit_decreasing
from bert_jax.errors import OptionError

# With more rows the variance is smaller: rows are fuller and fewer examples are left out. But every
# host plans all rows of a group.
GROUP_ROWS = 1024

# A row of T tokens has T / 8 next-sentence labels.
_TOKENS_PER_LABEL = 8

# Examples packed at the start to measure how many fill a group; their mean size is known to 1 %.
_SAMPLE = 1 << 14


class PackedBatches:
    """The batches of one split of a corpus, several examples in a row.

    Every batch has these keys (B rows of this host, T tokens, P masked tokens, and K = T / 8, the
    maximum number of examples of a row):

    | key | dtype, shape | meaning |
    |---|---|---|
    | input_ids | int32 [B, T] | one example after the other, masked, then [PAD] |
    | token_type_ids | int32 [B, T] | 1 for second sentences and their [SEP], else 0 |
    | segment_ids | int32 [B, T] | number of the example in the row, 1 … K; 0 for padding |
    | position_ids | int32 [B, T] | 0, 1, … from each [CLS] on; 0 for padding |
    | masked_lm_positions | int32 [B, P] | positions of masked tokens, ascending, filled with 0 |
    | masked_lm_ids | int32 [B, P] | original tokens at these positions, filled with 0 |
    | masked_lm_weights | float32 [B, P] | 1 for masked positions, 0 for the filling |
    | next_sentence_positions | int32 [B, K] | positions of the examples' [CLS], filled with 0 |
    | next_sentence_labels | int32 [B, K] | as in `PretrainingBatches`, filled with 0 |
    | next_sentence_weights | float32 [B, K] | 1; 0 for the filling |

    The last three are missing with the objective "none". A span-boundary objective has the keys of
    `PretrainingBatches`, with positions along the row.

    Attributes:
        rows_per_epoch: number of rows for the examples of an epoch, rounded up.
    """

    def __init__(self, examples: PretrainingBatches) -> None:
        """Measures how many examples fill a group.

        Args:
            examples: unpacked examples to pack.

        Raises:
            UserError: `max_predictions` is too small for a full row.
        """
        self._examples = examples
        self._length = examples.length
        predictions = examples.options.max_predictions
        unlimited = dataclasses.replace(examples.options, max_predictions=self._length)
        needed = int(masking.num_predictions(np.array([self._length]), unlimited)[0])
        if predictions < needed:
            raise OptionError(
                "data.max_predictions",
                predictions,
                f"a packed row of {self._length} tokens has {needed} masked ones; raise it to "
                f"{needed} or a little more",
            )
        self._predictions = predictions
        self._labels = max(1, self._length // _TOKENS_PER_LABEL)
        sizes = self._sizes(examples.lengths(np.arange(_SAMPLE)))
        rows = 1 + int(best_fit_decreasing(sizes, lambda size: self._length).max())
        self._pool = round(GROUP_ROWS * len(sizes) / rows)
        self._fitting_size = GROUP_ROWS * int(sizes.sum()) / rows
        self.rows_per_epoch = -(-examples.examples_per_epoch * GROUP_ROWS // self._pool)
        # Consecutive batches share groups.
        self._group = functools.lru_cache(maxsize=4)(self._pack)

    def batch(self, number: int, rows: int, *, host: int = 0, hosts: int = 1) -> Batch:
        """This host's rows of global batch `number`; see `PretrainingBatches.batch`."""
        first = (number * hosts + host) * rows
        parts = []
        for index in range(first // GROUP_ROWS, (first + rows - 1) // GROUP_ROWS + 1):
            group = self._group(index)
            row = index * GROUP_ROWS + group.rows - first
            inside = (row >= 0) & (row < rows)
            parts.append((group.numbers[inside], group.lengths[inside], row[inside]))
        numbers, lengths, row_of_example = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        # The maximum length, since T would be mostly padding.
        examples = self._examples.examples(numbers, length=int(lengths.max(initial=1)))
        return self._join(examples, lengths, row_of_example, rows)

    def shares(self, groups: int = 8) -> tuple[float, float]:
        """The shares of positions that are padding, and of examples that an epoch leaves out.

        They are measured on the first groups of a run.
        """
        lengths = np.concatenate([self._group(group).lengths for group in range(groups)])
        filled = float(lengths.sum() / (groups * GROUP_ROWS * self._length))
        return 1 - filled, 1 - len(lengths) / (groups * self._pool)

    def _sizes(self, lengths: np.ndarray) -> np.ndarray:
        """The size of examples in tokens of a row: lengths int64 [n] → int64 [n].

        A row is limited in tokens, masked tokens and labels; the size is the largest fraction of
        these three, so examples that fit by size fit in all of them.
        """
        masked = masking.num_predictions(lengths, self._examples.options)
        by_masked = -(-masked * self._length // self._predictions)
        by_label = -(-self._length // self._labels)
        return np.maximum(np.maximum(lengths, by_masked), by_label)

    def _pack(self, group: int) -> "_Group":
        """The examples of a group in their rows."""
        pool = np.arange(group * self._pool, (group + 1) * self._pool)
        lengths = self._examples.lengths(pool)
        sizes = self._sizes(lengths)
        # Left out at random, not by size: otherwise the same texts would be left out in each epoch.
        fitting = np.cumsum(sizes) <= self._fitting_size
        rows = np.full(len(pool), -1)
        rows[fitting] = best_fit_decreasing(sizes[fitting], lambda size: self._length, GROUP_ROWS)
        order = np.flatnonzero(rows >= 0)
        # Packing begins with the longest examples, so rows are shuffled.
        rows = randomness.permute(rows[order], GROUP_ROWS, randomness.derive_key(group))
        order = order[np.argsort(rows, kind="stable")]
        return _Group(pool[order], lengths[order], np.sort(rows))

    def _join(self, examples: Batch, lengths: np.ndarray, rows: np.ndarray, count: int) -> Batch:
        """Packs unpacked examples into rows.

        Args:
            examples: unpacked examples from `PretrainingBatches`, in the order of their rows.
            lengths: int64 [n], number of tokens of each example.
            rows: int64 [n], ascending, row of each example.
            count: B, number of rows.
        """
        # Masked tokens and labels are joined as the tokens, see `joined`.
        is_masked = examples["masked_lm_weights"] > 0  # [n, P]
        before = np.cumsum(lengths) - lengths
        start = before - before[np.searchsorted(rows, rows)]  # start of each example in its row

        def used(counts: np.ndarray, width: int) -> np.ndarray:
            """Mask of the first entries of each row, `counts` [n] per example: bool [B, width]."""
            return np.arange(width) < np.bincount(rows, counts, count)[:, None]

        masked = used(is_masked.sum(axis=1), self._predictions)

        def along_row(name: str) -> np.ndarray:
            """An array of the masked tokens; positions count along the row, for the model."""
            values = examples[name] + start[:, None] * name.endswith("_positions")
            return filled(masked, values[is_masked]).astype(examples[name].dtype)

        packed = joined(examples, rows, (count, self._length), self._examples.padding_id)
        packed |= {
            name: along_row(name) for name in examples if name.startswith(("masked_lm_", "span_"))
        }
        if "next_sentence_labels" not in examples:
            return packed
        labels = used(np.ones(len(rows)), self._labels)
        return packed | {
            "next_sentence_positions": filled(labels, start),
            "next_sentence_labels": filled(labels, examples["next_sentence_labels"]),
            "next_sentence_weights": labels.astype(np.float32),
        }


class _Group(NamedTuple):
    """Examples in the order of their rows: their numbers, lengths and rows, int64 [n]."""

    numbers: np.ndarray
    lengths: np.ndarray
    rows: np.ndarray
