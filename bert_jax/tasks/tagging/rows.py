"""Tagged sentences as training rows: the labels of words at the first tokens of the words."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.data.examples import TaggedSentence
from bert_jax.data.labelled_batches import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.windows.word_windows import SPECIALS, WordWindow, WordWindows
from bert_jax.tasks.base.labelled_task import balanced_weights
from bert_jax.tasks.base.predictor import encode_in_chunks
from bert_jax.tasks.tagging.tags import TagSet
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedRow:
    """What is learned of a sentence, or of a window of a long one.

    Attributes:
        positions: where the first tokens of W words stand in the row, int32 [W].
        labels: the numbers of their tags, int32 [W].
        before: that of the word before them, which is learned in the window before; -1: none.
        after: that of the word behind them, likewise.
    """

    positions: np.ndarray
    labels: np.ndarray
    before: int
    after: int


class TaggedRows:
    """The rows of all training sentences, and the batches that are made of them.

    Attributes:
        lengths: int64 [n], tokens of each row.
    """

    def __init__(
        self,
        examples: Sequence[TaggedSentence],
        tag_set: TagSet,
        tokenizer: Tokenizer,
        length: int,
        *,
        balanced: bool = False,
    ) -> None:
        """Tokenises sentences.

        Args:
            examples: all have tags, which `tag_set` knows.
            tag_set: the tags of the model.
            tokenizer: of the model.
            length: the most tokens of a row.
            balanced: whether every tag is to have the same weight in the loss; else every word.
        """
        self._rows: list[TaggedRow] = []
        self._sequences = Sequences.of(
            self._read(examples, tag_set, WordWindows(tokenizer, length))
        )
        self._tokenizer = tokenizer
        self.lengths = self._sequences.lengths
        counts = np.zeros(len(tag_set.labels), np.int64)
        for row in self._rows:
            np.add.at(counts, row.labels, 1)
        ones = np.ones(len(counts), np.float32)
        self._weights = balanced_weights(counts) if balanced else ones

    def _read(
        self, examples: Sequence[TaggedSentence], tag_set: TagSet, encode: WordWindows
    ) -> Iterator[WordWindow]:
        """The tokens of the rows; what is learned of them is kept."""
        of_examples = encode_in_chunks(encode, (example.words for example in examples))
        for example, windows in zip(examples, of_examples, strict=True):
            self._rows += labelled_rows(example, windows, tag_set)
            yield from windows

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: np.ndarray, length: int) -> Batch:
        """Rows as a batch.

        Args:
            rows: int64 [B], numbers of rows; -1 is one of padding alone.
            length: T, no row has more tokens.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask`, int32 [B, T]; `word_positions` int32
            [B, W], where the first tokens of words stand, `labels` int32 [B, W] of these words, -1
            behind the last of them, and `weights` float32 [B, W], 0 there; `label_before` and
            `label_after` int32 [B], see `TaggedRow`. W = T - 2.
        """
        shape = len(rows), max(length - SPECIALS, 1)  # BW
        positions, labels = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        beside = np.full((2, len(rows)), -1, np.int32)
        for place, number in enumerate(rows.tolist()):
            if number >= 0:
                row = self._rows[number]
                positions[place, : len(row.labels)] = row.positions
                labels[place, : len(row.labels)] = row.labels
                beside[:, place] = row.before, row.after
        return {
            **self._sequences.pad(rows, length, self._tokenizer),
            "word_positions": positions,
            "labels": labels,
            "weights": np.where(labels < 0, np.float32(0), self._weights[labels]),
            "label_before": beside[0],
            "label_after": beside[1],
        }


def labelled_rows(
    example: TaggedSentence, windows: Sequence[WordWindow], tag_set: TagSet
) -> Iterator[TaggedRow]:
    """The rows of a sentence that has tags."""
    tags = example.tags or ()
    # Of a word without tokens nothing can be learned; an entity that began there begins later.
    read = [tags[word] for window in windows for word in window.words]
    labels = np.append(tag_set.numbers(read), np.int32(-1))  # behind the last, and so before 0
    start = 0
    for window in windows:
        end = start + len(window.words)
        positions = np.array(window.positions, np.int32)
        yield TaggedRow(positions, labels[start:end], int(labels[start - 1]), int(labels[end]))
        start = end
